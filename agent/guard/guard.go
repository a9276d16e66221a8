// Package guard connects to hosts that web pages, a model or people name. It keeps such names from
// leading into this machine or its network.
//
// A [Guard] makes HTTP clients. They follow http and https to ports 80 and 443 of public
// addresses. A name is resolved once for each connection, by the guard itself; every address it
// has is checked, and the connection goes to one of these: an answer that changes afterwards
// changes nothing. Redirects are checked like the first request, five at most. The proxies of the
// environment are not used, because they would resolve the names themselves.
//
// Its limit: a network that translates IPv4 by a prefix of its own (RFC 6052) is not recognised.
// The package owns no tables or files.
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

// ErrRefused is what every [Error] is: the target may not be reached, and trying again is no use.
var ErrRefused = errors.New("refused to connect")

// An Error reports that a URL, one it redirects to, or an address of its host may not be reached.
// Its text is for people and models.
type Error struct {
	URL    string // without user name and password, cut if long; or host and port
	Reason string // a clause
}

func (e *Error) Error() string {
	return fmt.Sprintf("refused to connect to %s: %s", e.URL, e.Reason)
}

// Unwrap returns [ErrRefused].
func (e *Error) Unwrap() error { return ErrRefused }

// A Resolver finds the addresses of a host, as [net.Resolver] does.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Options are what is optional about a [Guard].
type Options struct {
	// Allow has the networks that may be reached although they are not public, such as the
	// operator's own. Where a local proxy answers for all names with addresses of 198.18.0.0/15,
	// that is one of them.
	Allow []netip.Prefix

	// Ports are those that may be reached besides 80 and 443, at every address.
	Ports []int

	// Resolver is [net.DefaultResolver] by default. It may be used concurrently.
	Resolver Resolver

	// ConnectTimeout is the most that resolving and connecting take; by default 10 s.
	ConnectTimeout time.Duration

	// HeaderTimeout is the most that a server takes to begin its answer; by default 30 s.
	HeaderTimeout time.Duration
}

// A Guard decides what may be reached. It may be used concurrently.
type Guard struct {
	allow    []netip.Prefix
	ports    map[int]bool
	resolver Resolver
	connect  time.Duration
	header   time.Duration
}

// New returns a guard; nil options are the usual ones.
func New(opts *Options) *Guard {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	g := &Guard{
		allow: slices.Clone(o.Allow), ports: map[int]bool{80: true, 443: true}, resolver: o.Resolver,
		connect: cmp.Or(o.ConnectTimeout, 10*time.Second),
		header:  cmp.Or(o.HeaderTimeout, 30*time.Second),
	}
	for _, p := range o.Ports {
		g.ports[p] = true
	}
	if g.resolver == nil {
		g.resolver = net.DefaultResolver
	}
	return g
}

// portList returns the ports for an error.
func (g *Guard) portList() string {
	var list []string
	for _, p := range slices.Sorted(maps.Keys(g.ports)) {
		list = append(list, strconv.Itoa(p))
	}
	return "ports " + strings.Join(list, ", ")
}

// maxDials is how many of a host's addresses are tried.
const maxDials = 4

// DialContext connects to a host and port, such as "example.org:443", if all addresses of the
// host may be reached. The network is "tcp", "tcp4" or "tcp6".
func (g *Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, g.connect)
	defer cancel()
	addrs, port, err := g.resolve(ctx, network, address)
	if err != nil {
		return nil, err
	}
	addrs = addrs[:min(len(addrs), maxDials)]
	dialer := net.Dialer{Timeout: g.connect / time.Duration(len(addrs))}
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

// resolve returns the addresses that the host of address may be reached at, one or more.
func (g *Guard) resolve(
	ctx context.Context, network, address string,
) ([]netip.Addr, uint16, error) {
	refuse := func(err error) error { return &Error{URL: shown(address), Reason: err.Error()} }
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
	// One that may not be reached speaks against the host: honest ones have none.
	for i, addr := range addrs {
		if what := g.refusal(addr); what != "" {
			return nil, 0, refuse(fmt.Errorf("the host %s has the address %s, which is %s; "+
				"only public addresses can be reached", host, addr, what))
		}
		addrs[i] = addr.Unmap()
	}
	return addrs, uint16(n), nil
}

// Transport returns a new transport, with its own connections. It checks the URL of each request
// and each address that it connects to, also for a client that has redirect rules of its own.
// Its CloseIdleConnections, which [http.Client] calls, ends what is left.
func (g *Guard) Transport() http.RoundTripper {
	return &transport{guard: g, base: &http.Transport{
		DialContext:            g.DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    g.connect,
		ResponseHeaderTimeout:  g.header,
		MaxResponseHeaderBytes: 256 << 10,
		MaxIdleConns:           32,
		MaxIdleConnsPerHost:    2,
		IdleConnTimeout:        30 * time.Second,
	}}
}
