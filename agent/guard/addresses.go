package guard

import (
	"net/netip"
	"slices"
)

// A special network is one whose addresses are not public.
type special struct {
	prefix netip.Prefix
	what   string // description of its addresses
}

// specials are the refused networks, in the order of the lookup: those of the IANA IPv4 and IPv6
// Special-Purpose Address Registries (RFC 6890), multicast and reserved space. They include blocks
// that IANA calls globally reachable but that have no web servers, such as those of AS112.
//
// IPv6 networks whose addresses contain IPv4 addresses are refused as a whole if the mechanism is
// deprecated or local: IPv4-compatible addresses, 6to4, Teredo, and local NAT64. For the two
// mechanisms that are still in use, [embeddedIPv4] extracts the IPv4 address, and that is checked.
var specials = []special{
	{netip.MustParsePrefix("0.0.0.0/8"), "an address of this machine or network"},
	{netip.MustParsePrefix("10.0.0.0/8"), "a private address"},
	{netip.MustParsePrefix("100.64.0.0/10"), "an address within a provider's network"},
	{netip.MustParsePrefix("127.0.0.0/8"), "a loopback address"},
	{netip.MustParsePrefix("168.63.129.16/32"), "the host of an Azure machine"}, // a public address
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
	// globalUnicast is the space from which IANA assigns public IPv6 addresses (RFC 4291).
	globalUnicast = netip.MustParsePrefix("2000::/3")

	// nat64 is the well-known prefix of RFC 6052. Machines without IPv4 reach most of the web
	// through it. A prefix that a network has chosen itself can't be recognised.
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
)

// refusal returns the description of an address that may not be reached, or "" for an allowed
// address.
func (g *Guard) refusal(addr netip.Addr) string {
	if addr.Zone() != "" {
		return "an address with a zone"
	}
	addr = addr.Unmap()
	if slices.ContainsFunc(g.allow, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return ""
	}
	return refusal(embeddedIPv4(addr))
}

// refusal returns the same without regard to the networks that an operator has allowed.
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

// embeddedIPv4 returns the IPv4 address in a NAT64 address. It returns other addresses unchanged.
func embeddedIPv4(addr netip.Addr) netip.Addr {
	if !nat64.Contains(addr) {
		return addr
	}
	b := addr.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

// isISATAP reports whether the lower half of an address is that of an ISATAP tunnel, which ends at
// the IPv4 address in it (RFC 5214).
func isISATAP(addr netip.Addr) bool {
	b := addr.As16() // b[10] of an IPv4 address is 0xff
	return b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}
