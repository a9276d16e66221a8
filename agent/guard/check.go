package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"gateway/store/plaintext"
)

// maxURL is the greatest length of a URL, in bytes.
const maxURL = 8 << 10

// Check returns a URL in canonical form: the host in lower-case ASCII without a final dot, and an
// IP address in its usual form. It refuses URLs that no [Guard.Client] would follow: schemes other
// than http and https, a user name or password, ports that are not allowed, hosts in the form of a
// number, and addresses that may not be reached. It does not resolve names; their addresses are
// checked on connecting.
func (g *Guard) Check(rawURL string) (*url.URL, error) {
	rawURL = strings.TrimSpace(rawURL)
	u, err := parse(rawURL)
	if err != nil {
		return nil, &Error{URL: redactURL(rawURL), Reason: err.Error()}
	}
	host, err := g.host(u.Hostname())
	if err == nil {
		u.Host, err = g.hostPort(u.Scheme, host, u.Port())
	}
	if err != nil {
		return nil, &Error{URL: redactURL(rawURL), Reason: err.Error()}
	}
	return u, nil
}

// parse parses a URL as strictly as possible. If programs disagree about the host, an attacker can
// use the difference.
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
	// number matches a last label that makes a host an IPv4 address according to WHATWG.
	number = plaintext.Pattern(`^([0-9]+|0[xX][0-9a-fA-F]*)$`)

	// label matches a DNS label of any length as used in practice, which may have underscores.
	label = plaintext.Pattern(`^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?$`)
)

// host returns a host in canonical form, or an error if it is refused.
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
	if number().MatchString(labels[len(labels)-1]) {
		addr, err := netip.ParseAddr(name)
		if err != nil {
			return "", fmt.Errorf("the host %.80q looks like a number; "+
				"write an address as four decimal numbers, or the name of the host", name)
		}
		return g.address(addr)
	}
	for _, l := range labels {
		if len(l) > 63 || !label().MatchString(l) {
			return "", fmt.Errorf("the host %.80q is not a valid name", name)
		}
	}
	return name, nil
}

// ascii returns a name in lower-case ASCII. The DNS and programs that map full-width characters to
// ASCII must see the same name.
func ascii(name string) (string, error) {
	const most = 1000 // bytes; the cost of mapping longer names grows fast
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

// address returns an address as text, or an error if it may not be reached.
func (g *Guard) address(addr netip.Addr) (string, error) {
	if what := g.refusal(addr); what != "" {
		return "", fmt.Errorf("%s is %s; only public addresses can be reached", addr, what)
	}
	return addr.Unmap().String(), nil
}

// hostPort returns the host of a URL, with the port unless it is the scheme's default.
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

// redactURL returns a URL for an error: without user name and password, as one short line. The text
// may not be a valid URL.
func redactURL(rawURL string) string {
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
	return plaintext.Clip(rawURL, most)
}
