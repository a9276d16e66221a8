package guard

import (
	"net/netip"
	"slices"
)

// A special network is one in which there is nothing that everybody can reach.
type special struct {
	prefix netip.Prefix
	what   string // an address of it is
}

// The addresses that are refused, in the order in which they are looked up: those of the IANA
// IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890), of the multicast
// and of the reserved space. Blocks that IANA calls globally reachable but that have no web
// servers, such as those of AS112, are refused with the others.
//
// Addresses of IPv6 that carry one of IPv4 are refused as a whole where the mechanism is
// deprecated or local (compatible addresses, 6to4, Teredo, NAT64 of local use). The two that
// machines still use are unwrapped by [inner] and judged by the address inside.
var specials = []special{
	{netip.MustParsePrefix("0.0.0.0/8"), "an address of this machine or network"},
	{netip.MustParsePrefix("10.0.0.0/8"), "a private address"},
	{netip.MustParsePrefix("100.64.0.0/10"), "an address within a provider's network"},
	{netip.MustParsePrefix("127.0.0.0/8"), "a loopback address"},
	{netip.MustParsePrefix("168.63.129.16/32"), "the host of an Azure machine"}, // in public space
	{netip.MustParsePrefix("169.254.0.0/16"), "a link-local address"},           // cloud metadata
	{netip.MustParsePrefix("172.16.0.0/12"), "a private address"},
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved for protocols"},
	{netip.MustParsePrefix("192.0.2.0/24"), "reserved for documentation"},
	{netip.MustParsePrefix("192.31.196.0/24"), "reserved for AS112"},
	{netip.MustParsePrefix("192.52.193.0/24"), "reserved for multicast tunnels"},
	{netip.MustParsePrefix("192.88.99.0/24"), "reserved for 6to4 relays"},
	{netip.MustParsePrefix("192.168.0.0/16"), "a private address"},
	{netip.MustParsePrefix("192.175.48.0/24"), "reserved for AS112"},
	{netip.MustParsePrefix("198.18.0.0/15"), "reserved for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "reserved for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "reserved for documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address"},
	{netip.MustParsePrefix("240.0.0.0/4"), "a reserved address"},

	{netip.MustParsePrefix("::/128"), "an address of this machine or network"},
	{netip.MustParsePrefix("::1/128"), "a loopback address"},
	{netip.MustParsePrefix("::/96"), "an IPv4-compatible address"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "a local address of NAT64"},
	{netip.MustParsePrefix("100::/64"), "a discard-only address"},
	{netip.MustParsePrefix("100:0:0:1::/64"), "a dummy address"},
	{netip.MustParsePrefix("2001::/32"), "a Teredo address"},
	{netip.MustParsePrefix("2001::/23"), "reserved for protocols"},
	{netip.MustParsePrefix("2001:db8::/32"), "reserved for documentation"},
	{netip.MustParsePrefix("2002::/16"), "a 6to4 address"},
	{netip.MustParsePrefix("2620:4f:8000::/48"), "reserved for AS112"},
	{netip.MustParsePrefix("3fff::/20"), "reserved for documentation"},
	{netip.MustParsePrefix("5f00::/16"), "reserved for segment routing"},
	{netip.MustParsePrefix("fc00::/7"), "a private address"},
	{netip.MustParsePrefix("fe80::/10"), "a link-local address"},
	{netip.MustParsePrefix("fec0::/10"), "a site-local address"},
	{netip.MustParsePrefix("ff00::/8"), "a multicast address"},
}

var (
	// globalUnicast is all that IANA has ever given out of IPv6 for the internet (RFC 4291).
	globalUnicast = netip.MustParsePrefix("2000::/3")

	// nat64 is the well-known prefix of RFC 6052, behind which machines without IPv4 find
	// most of the web. Prefixes that a network has chosen for itself can't be told from others.
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
)

// refusal says what an address is that may not be reached, or "" if it may.
func (g *Guard) refusal(addr netip.Addr) string {
	if addr.Zone() != "" {
		return "an address with a zone"
	}
	addr = addr.Unmap()
	if slices.ContainsFunc(g.allow, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return ""
	}
	return refusal(inner(addr))
}

// refusal is that of everybody, without what an operator has allowed.
func refusal(addr netip.Addr) string {
	for _, s := range specials {
		if s.prefix.Contains(addr) {
			return s.what
		}
	}
	switch {
	case !addr.IsValid():
		return "no address"
	case addr.Is6() && !globalUnicast.Contains(addr):
		return "an address outside of the public internet"
	case isISATAP(addr):
		return "an ISATAP address"
	}
	return ""
}

// inner returns the address of IPv4 that an address of NAT64 leads to, else the address.
func inner(addr netip.Addr) netip.Addr {
	if !nat64.Contains(addr) {
		return addr
	}
	b := addr.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

// isISATAP reports whether the lower half of an address is that of an ISATAP tunnel, which ends
// at the address of IPv4 in it (RFC 5214).
func isISATAP(addr netip.Addr) bool {
	if !addr.Is6() {
		return false
	}
	b := addr.As16()
	return b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}
