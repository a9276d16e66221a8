// Package guard connects to hosts that web pages, models or people name. It prevents that such
// names lead into this machine or its network (SSRF).
//
// A [Guard] makes HTTP clients. They use http and https on ports 80 and 443 of public addresses.
// The guard itself resolves a name once for each connection and checks all of its addresses. It
// then connects to one of these, so a later change of the DNS answer has no effect. Redirects, at
// most five, are checked like the first request. Proxies of the environment are not used, because
// they would resolve names themselves.
//
// Limitation: the guard can't recognise a NAT64 prefix that a network has chosen itself (RFC 6052).
// The package has no database tables or files.
package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrRefused is wrapped by every [Error]: the target may not be reached, and a retry is useless.
var ErrRefused = errors.New("refused to connect")

// An Error reports that a URL, the target of a redirect, or an address of the host may not be
// reached. Its text is for people and models.
type Error struct {
	URL    string // without user name and password, may be cut; or host and port
	Reason string // a clause
}

func (e *Error) Error() string {
	return fmt.Sprintf("refused to connect to %s: %s", e.URL, e.Reason)
}

// Unwrap returns [ErrRefused].
func (e *Error) Unwrap() error { return ErrRefused }

// A Resolver resolves host names as [net.Resolver] does.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Options are the optional settings of a [Guard].
type Options struct {
	// Allow lists networks that may be reached although they are not public, for example the
	// operator's own. It must contain 198.18.0.0/15 if a local proxy resolves all names to such
	// addresses.
	Allow []netip.Prefix

	// Ports may be reached besides 80 and 443, at every address.
	Ports []int

	// Resolver must be safe for concurrent use. The default is [net.DefaultResolver].
	Resolver Resolver
}

// Limits of one connection.
const (
	connectTime = 10 * time.Second // for resolving and connecting
	headerTime  = 30 * time.Second // until the response's header is complete
)

// A Guard decides which addresses may be reached. It is safe for concurrent use.
type Guard struct {
	allow    []netip.Prefix
	ports    map[int]bool
	resolver Resolver
}

// New returns a guard. opts may be nil.
func New(opts *Options) *Guard {
	o := *cmp.Or(opts, new(Options))
	g := &Guard{
		allow: slices.Clone(o.Allow), ports: map[int]bool{80: true, 443: true}, resolver: o.Resolver,
	}
	for _, p := range o.Ports {
		g.ports[p] = true
	}
	if g.resolver == nil {
		g.resolver = net.DefaultResolver
	}
	return g
}

// portList returns the allowed ports for an error.
func (g *Guard) portList() string {
	var list []string
	for _, p := range slices.Sorted(maps.Keys(g.ports)) {
		list = append(list, strconv.Itoa(p))
	}
	return "ports " + strings.Join(list, ", ")
}

// maxDials is how many of a host's addresses are tried.
const maxDials = 4

// DialContext connects to a host and port, such as "example.org:443", if all addresses of the host
// may be reached. network is "tcp", "tcp4" or "tcp6".
func (g *Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	addrs, port, err := g.resolve(ctx, network, address)
	if err != nil {
		return nil, err
	}
	addrs = alternate(addrs)
	addrs = addrs[:min(len(addrs), maxDials)]
	dialer := net.Dialer{Timeout: connectTime / time.Duration(len(addrs))}
	var errs []error
	for _, addr := range addrs {
		conn, err := dialer.DialContext(ctx, network, netip.AddrPortFrom(addr, port).String())
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// alternate returns addrs with IPv4 and IPv6 by turns. On a machine only one of them may work, and
// many hosts have more addresses of one kind than are tried.
func alternate(addrs []netip.Addr) (list []netip.Addr) {
	var other []netip.Addr
	for _, a := range addrs {
		if a.Is4() == addrs[0].Is4() {
			list = append(list, a)
		} else {
			other = append(other, a)
		}
	}
	for i, a := range other {
		list = slices.Insert(list, min(2*i+1, len(list)), a)
	}
	return list
}

// resolve returns the addresses of the host in address, at least one. It returns an error if one of
// them may not be reached.
func (g *Guard) resolve(
	ctx context.Context, network, address string,
) ([]netip.Addr, uint16, error) {
	refuse := func(err error) error { return &Error{URL: redactURL(address), Reason: err.Error()} }
	ipNetwork, ok := map[string]string{"tcp": "ip", "tcp4": "ip4", "tcp6": "ip6"}[network]
	if !ok {
		return nil, 0, refuse(fmt.Errorf("the network is %q; only TCP can be used", network))
	}
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, 0, refuse(errors.New("it is not a host with a port"))
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || !g.ports[int(n)] {
		return nil, 0, refuse(fmt.Errorf("port %.8s may not be used; only %s can be reached",
			port, g.portList()))
	}
	host, err := g.host(name)
	if err != nil {
		return nil, 0, refuse(err)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, uint16(n), nil
	}
	addrs, err := g.resolver.LookupNetIP(ctx, ipNetwork, host)
	if err != nil {
		return nil, 0, err
	}
	if len(addrs) == 0 {
		return nil, 0, &net.DNSError{Err: "no addresses", Name: host, IsNotFound: true}
	}
	// One forbidden address is enough to refuse the host: honest hosts have none.
	for i, addr := range addrs {
		if what := g.refusal(addr); what != "" {
			return nil, 0, refuse(fmt.Errorf("the host %s has the address %s, which is %s; "+
				"only public addresses can be reached", host, addr, what))
		}
		addrs[i] = addr.Unmap()
	}
	return addrs, uint16(n), nil
}

// Transport returns a new transport with its own connections. It checks the URL of each request and
// each address that it connects to, even if the client has its own rules for redirects.
// [http.Client] closes unused connections by its CloseIdleConnections.
func (g *Guard) Transport() http.RoundTripper {
	return &transport{guard: g, base: &http.Transport{
		DialContext:            g.DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    connectTime,
		ResponseHeaderTimeout:  headerTime,
		MaxResponseHeaderBytes: 256 << 10,
		MaxIdleConns:           32,
		MaxIdleConnsPerHost:    2,
		IdleConnTimeout:        30 * time.Second,
	}}
}
