package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// maxURL is the longest address that is looked at, in bytes.
const maxURL = 8 << 10

// Check returns a URL in the one spelling that is used from then on: the host in lower case and
// ASCII, without the dot at its end; an address as it is normally written. It refuses what no
// [Client] would follow: other schemes than http and https, a user name or password, ports that
// are not allowed, and hosts that are written as a number or are an address that may not be
// reached. Names are not resolved: their addresses are checked when connecting.
func (g *Guard) Check(rawURL string) (*url.URL, error) {
	rawURL = strings.TrimSpace(rawURL)
	u, err := parse(rawURL)
	if err != nil {
		return nil, &Error{URL: shown(rawURL), Reason: err.Error()}
	}
	host, err := g.host(u.Hostname())
	if err == nil {
		u.Host, err = g.hostPort(u.Scheme, host, u.Port())
	}
	if err != nil {
		return nil, &Error{URL: shown(rawURL), Reason: err.Error()}
	}
	return u, nil
}

// parse reads a URL as strictly as possible: where programs disagree about what the host is,
// one of them can be fooled.
func parse(rawURL string) (*url.URL, error) {
	if len(rawURL) > maxURL {
		return nil, fmt.Errorf("the URL has more than %d bytes", maxURL)
	}
	if !utf8.ValidString(rawURL) {
		return nil, errors.New("the URL is not a valid one: it is not UTF-8")
	}
	for _, r := range rawURL {
		if r <= ' ' || r == 0x7f || r == '\\' {
			return nil, fmt.Errorf("the URL contains %q; write it percent-encoded", r)
		}
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("it is not a valid URL; want one such as https://example.org/page")
	}
	switch {
	case u.Scheme == "":
		return nil, errors.New("the URL has no scheme; want one that begins with https://")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("the scheme is %q; only http and https can be reached", u.Scheme)
	case u.User != nil:
		return nil, errors.New("the URL contains a user name or password; leave it out")
	case u.Hostname() == "":
		return nil, errors.New("the URL has no host; want one such as https://example.org/page")
	}
	return u, nil
}

var (
	// number is how a label looks that makes a host an address of IPv4, as the WHATWG has it.
	number = regexp.MustCompile(`^([0-9]+|0[xX][0-9a-fA-F]*)$`)

	// label is what a name in the DNS consists of in practice: with underscores.
	label = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)
)

// host returns a host as it is used from then on.
func (g *Guard) host(name string) (string, error) {
	if strings.Contains(name, ":") {
		addr, err := netip.ParseAddr(name)
		if err != nil {
			return "", fmt.Errorf("the host %.80q is not a valid address", name)
		}
		return g.address(addr)
	}
	name, err := ascii(name)
	if err != nil {
		return "", err
	}
	labels := strings.Split(name, ".")
	if number.MatchString(labels[len(labels)-1]) {
		addr, err := netip.ParseAddr(name)
		if err != nil {
			return "", fmt.Errorf("the host %.80q looks like a number; "+
				"write an address as four decimal numbers, or the name of the host", name)
		}
		return g.address(addr)
	}
	for _, l := range labels {
		if !label.MatchString(l) {
			return "", fmt.Errorf("the host %.80q is not a valid name", name)
		}
	}
	return name, nil
}

// ascii returns a name in lower case and ASCII: the DNS and programs that map full-width signs
// to plain ones must see the same.
func ascii(name string) (string, error) {
	const most = 1000 // bytes; what the mapping of longer ones costs grows fast
	if len(name) > most {
		return "", fmt.Errorf("the host %.80q… is too long", name)
	}
	written := name
	for i := range len(name) {
		if name[i] < 0x80 {
			continue
		}
		var err error
		if name, err = idna.Lookup.ToASCII(name); err != nil {
			return "", fmt.Errorf("the host %.80q is not a valid name", written)
		}
		break
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if len(name) > 253 { // RFC 1035
		return "", fmt.Errorf("the host %.80q… is too long", written)
	}
	return name, nil
}

// address returns an address as text if it may be reached.
func (g *Guard) address(addr netip.Addr) (string, error) {
	if what := g.refusal(addr); what != "" {
		return "", fmt.Errorf("%s is %s; only public addresses can be reached", addr, what)
	}
	return addr.Unmap().String(), nil
}

// hostPort returns the host of a URL, with its port if that is not the usual one.
func (g *Guard) hostPort(scheme, host, port string) (string, error) {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port == "" {
		return host, nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || !g.ports[int(n)] {
		return "", fmt.Errorf("port %.8s may not be used; only %s can be reached", port, g.portList())
	}
	if scheme == "http" && n == 80 || scheme == "https" && n == 443 {
		return host, nil
	}
	return fmt.Sprintf("%s:%d", host, n), nil
}

// shown returns a URL for an error: without a user name or password, on one line and not too
// long. It is what somebody wrote, so it may be no URL at all.
func shown(rawURL string) string {
	const most = 200
	if before, rest, ok := strings.Cut(rawURL, "//"); ok {
		authority, path := rest, ""
		if i := strings.IndexAny(rest, "/?#"); i >= 0 {
			authority, path = rest[:i], rest[i:]
		}
		if i := strings.LastIndex(authority, "@"); i >= 0 {
			rawURL = before + "//" + authority[i+1:] + path
		}
	}
	rawURL = strings.ToValidUTF8(rawURL, "�")
	rawURL = strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '�'
		}
		return r
	}, rawURL)
	if len(rawURL) > most {
		rawURL = strings.ToValidUTF8(rawURL[:most], "") + "…"
	}
	return rawURL
}
