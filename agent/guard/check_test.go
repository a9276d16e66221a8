package guard

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	tests := []struct{ in, want string }{
		{"https://example.org", "https://example.org"},
		{"HTTPS://Example.ORG./a?b#c", "https://example.org/a?b#c"},
		{"  https://example.org/\n", "https://example.org/"},
		{"https://example.org:443/", "https://example.org/"},
		{"http://example.org:0443/", "http://example.org:443/"},
		{"http://example.org:80/x%20y", "http://example.org/x%20y"},
		{"http://example.org:/x", "http://example.org/x"},
		{"http://8.8.8.8/", "http://8.8.8.8/"},
		{"http://８。８。８。８/", "http://8.8.8.8/"},
		{"http://[2606:4700::1111]/", "http://[2606:4700::1111]/"},
		{"http://[::ffff:8.8.8.8]/", "http://8.8.8.8/"},
		{"http://[64:ff9b::808:808]/", "http://[64:ff9b::808:808]/"},
		{"https://bücher.example/ä", "https://xn--bcher-kva.example/%C3%A4"},
		{"https://a_b.example.org/", "https://a_b.example.org/"},
		{"https://example.org/a@b:c//d", "https://example.org/a@b:c//d"},
		{"https://1.2.3.4.example.org/", "https://1.2.3.4.example.org/"},
	}
	g := New(nil)
	for _, tt := range tests {
		got, err := g.Check(tt.in)
		if err != nil || got.String() != tt.want {
			t.Errorf("Check(%q) = %v, %v; want %s", tt.in, got, err, tt.want)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	const (
		loopback  = "127.0.0.1 is a loopback address; only public addresses can be reached"
		numeric   = "looks like a number"
		scheme    = "only http and https can be reached"
		invalid   = "not a valid"
		character = "write it percent-encoded"
		user      = "user name or password"
		port      = "only ports 80, 443 can be reached"
	)
	tests := []struct{ in, want string }{
		// Spellings of 127.0.0.1.
		{"http://127.0.0.1/", loopback},
		{"http://127.0.0.1./", loopback},
		{"http://2130706433/", numeric},
		{"http://017700000001/", numeric},
		{"http://0x7f000001/", numeric},
		{"http://0X7F.1/", numeric},
		{"http://0x7f.0x0.0x0.0x1/", numeric},
		{"http://0177.0.0.1/", numeric},
		{"http://127.0.0.01/", numeric},
		{"http://127.1/", numeric},
		{"http://127.0.1/", numeric},
		{"http://0/", numeric},
		{"http://0x/", numeric},
		{"http://127.0.0.0x1/", numeric},
		{"http://127.0.0.1.1/", numeric},
		{"http://127.0.0.256/", numeric},
		{"http://999999999999/", numeric},
		{"http://example.1/", numeric},
		{"http://１２７.０.０.１/", loopback},
		{"http://127。0。0。1/", loopback},
		{"http://127．0．0．1/", loopback},
		{"http://①②⑦.⓪.⓪.①/", loopback},
		{"http://1\u00ad27.0.0.1/", loopback}, // a soft hyphen, which IDNA removes
		{"http://%EF%BC%91%EF%BC%92%EF%BC%97.0.0.1/", loopback},
		{"http://%31%32%37.0.0.1/", invalid},
		{"http://127%2e0.0.1/", invalid},
		{"http://[::1]/", "::1 is a loopback address"},
		{"http://[0:0:0:0:0:0:0:1]/", "::1 is a loopback address"},
		{"http://[::ffff:127.0.0.1]/", "is a loopback address"},
		{"http://[::FFFF:7f00:1]/", "is a loopback address"},
		{"http://[::127.0.0.1]/", "an IPv4-compatible address"},
		{"http://[::]/", "an address of this machine"},
		{"http://[64:ff9b::127.0.0.1]/", "is a loopback address"},
		{"http://[64:ff9b::a9fe:a9fe]/", "is a link-local address"},
		{"http://[64:ff9b:1::8.8.8.8]/", "NAT64"},
		{"http://[2002:7f00:1::]/", "a 6to4 address"},
		{"http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/", "a Teredo address"},
		{"http://[2606:4700::200:5efe:7f00:1]/", "an ISATAP address"},
		{"http://[2606:4700::5efe:127.0.0.1]/", "an ISATAP address"},
		{"http://[fe80::1%25eth0]/", "an address with a zone"},
		{"http://[2606:4700::1%25lo]/", "an address with a zone"},
		{"http://[fd00:ec2::254]/", "a private address"},
		{"http://[fec0::1]/", "a site-local address"},
		{"http://[ff02::1]/", "a multicast address"},
		{"http://[4000::1]/", "outside of the public internet"},
		{"http://::1/", invalid},
		{"http://[127.0.0.1]/", invalid},
		{"http://[::1", invalid},
		{"http://[v1.x]/", invalid},

		{"http://169.254.169.254/latest/meta-data/", "a link-local address"},
		{"http://168.63.129.16/machine", "an Azure machine"},
		{"http://0.0.0.0/", "an address of this machine"},

		// URLs whose host is ambiguous.
		{"http://example.org@127.0.0.1/", user},
		{"http://127.0.0.1@example.org/", user},
		{"http://@example.org/", user},
		{"http://u:secret@example.org/", user},
		{"http://example.org\\@127.0.0.1/", character},
		{"http:\\\\127.0.0.1/", character},
		{"http://127.0.0.1\t.example.org/", character},
		{"http://exam\nple.org/", character},
		{"http://exam ple.org/", character},
		{"http://example.org/a b", character},
		{"http://example.org/\x00", character},
		{"http://example.org#@127.0.0.1\x7f", character},
		{"http://example.org%00.evil/", invalid},
		{"http://example.org%0a/", invalid},
		{"http://exa%mple.org/", invalid},
		{"http://a..b/", invalid},
		{"http://example.org../", invalid},
		{"http://.example.org/", invalid},
		{"http://./", invalid},
		{"http://-a.example/", invalid},
		{"http://a,b/", invalid},
		{"http://a'b/", invalid},
		{"http://*/", invalid},
		{"http://xn--/\u202e", ""},
		{"http://" + strings.Repeat("a", 64) + ".org/", invalid},
		{"http://" + strings.Repeat("a.", 130) + "org/", "too long"},
		{"http://\xff.org/", invalid},
		{"http://example.org/" + strings.Repeat("a", maxURL), "more than 8192 bytes"},

		// Other schemes, and URLs without a scheme.
		{"file:///etc/passwd", scheme},
		{"FILE:///etc/passwd", scheme},
		{"ftp://example.org/", scheme},
		{"gopher://example.org/", scheme},
		{"data:text/html,x", scheme},
		{"javascript:alert(1)", scheme},
		{"unix:/run/docker.sock", scheme},
		{"http+unix://%2Frun%2Fdocker.sock/", ""},
		{"ws://example.org/", scheme},
		{"example.org", "no scheme"},
		{"example.org:80/", scheme},
		{"//example.org/", "no scheme"},
		{"/etc/passwd", "no scheme"},
		{"", "no scheme"},
		{"http:", "no host"},
		{"http:///path", "no host"},
		{"http:example.org", "no host"},
		{"http://:80/", "no host"},
		{"http://?x", "no host"},

		{"http://example.org:22/", port},
		{"http://example.org:0/", port},
		{"http://example.org:65616/", port}, // 80 modulo 2^16
		{"http://example.org:-80/", invalid},
		{"http://example.org:8o/", invalid},
		{"http://example.org:80:80/", invalid},
	}
	g := New(nil)
	for _, tt := range tests {
		got, err := g.Check(tt.in)
		refused := (*Error)(nil)
		if !errors.As(err, &refused) || !errors.Is(err, ErrRefused) ||
			!strings.Contains(refused.Reason, tt.want) {
			t.Errorf("Check(%q) = %v, %v; want an error with %q", tt.in, got, err, tt.want)
			continue
		}
		if text := err.Error(); strings.Contains(text, "secret") || len(text) > 600 ||
			strings.ContainsAny(text, "\n\t\x00\u202e") {
			t.Errorf("Check(%q): the error is %q", tt.in, text)
		}
	}
}

// TestErrorText checks the error text that a model reads.
func TestErrorText(t *testing.T) {
	_, err := New(nil).Check("http://127.0.0.1/admin")
	const want = "refused to connect to http://127.0.0.1/admin: " +
		"127.0.0.1 is a loopback address; only public addresses can be reached"
	if err == nil || err.Error() != want {
		t.Errorf("Check = %v, want %s", err, want)
	}
}

func TestOptions(t *testing.T) {
	g := New(&Options{
		Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd12::/16")},
		Ports: []int{8080},
	})
	for _, allowed := range []string{
		"http://10.1.2.3/", "http://[::ffff:10.1.2.3]/", "https://[fd12::1]:8080/", "http://a.b:8080/",
	} {
		if _, err := g.Check(allowed); err != nil {
			t.Errorf("Check(%s) = %v, want it allowed", allowed, err)
		}
	}
	for _, refused := range []string{
		"http://10.2.0.1/", "http://[fd13::1]/", "http://127.0.0.1:8080/", "http://10.1.2.3:8081/",
		"http://[64:ff9b::10.1.2.3]/", // another network that is reached through NAT64
	} {
		if u, err := g.Check(refused); err == nil {
			t.Errorf("Check(%s) = %v, want it refused", refused, u)
		}
	}
}

// TestRefusal checks the first and the last address of each special network, and the neighbors of
// the networks.
func TestRefusal(t *testing.T) {
	for _, s := range specials {
		first, last := s.prefix.Addr(), lastOf(s.prefix)
		for _, addr := range []netip.Addr{first, last} {
			if refusal(addr) == "" {
				t.Errorf("%v of %v is not refused", addr, s.prefix)
			}
		}
	}
	for _, public := range []string{
		"1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
		"128.0.0.0", "168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0",
		"172.15.255.255", "172.32.0.0", "191.255.255.255", "192.0.1.0", "192.0.3.0", "192.167.255.255",
		"192.169.0.0", "198.17.255.255", "198.20.0.0", "203.0.112.255", "203.0.114.0",
		"223.255.255.255", "2000::", "2001:200::", "2001:db7:ffff::", "2001:db9::", "2001:ffff::",
		"2003::", "2606:4700::1111", "3ffe:ffff::1", "3fff:1000::",
	} {
		if what := refusal(netip.MustParseAddr(public)); what != "" {
			t.Errorf("%s is refused as %q", public, what)
		}
	}
	if refusal(netip.Addr{}) == "" {
		t.Error("no address is not refused")
	}
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	addr, _ := netip.AddrFromSlice(b)
	return addr
}

// FuzzCheck checks that Check never panics. A URL that it accepts is stable, is not ambiguous and
// does not have a refused address.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{
		"https://example.org/a?b#c", "http://127.1/", "http://[::1]/", "http://１２７.0.0.1/",
		"http://a@b/", "http://[fe80::1%25lo]:80/", "//x", "http://bücher.example:443",
		"http://0x7f.1/", "http://[64:ff9b::808:808]/", "http://8.8.8.8:80/",
	} {
		f.Add(s)
	}
	g := New(nil)
	f.Fuzz(func(t *testing.T, in string) {
		u, err := g.Check(in)
		if err != nil {
			return
		}
		again, err := g.Check(u.String())
		if err != nil || again.String() != u.String() {
			t.Errorf("Check(%q) = %q, and of that %v, %v", in, u, again, err)
		}
		parsed, err := url.Parse(u.String())
		if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.User != nil ||
			parsed.Hostname() == "" || parsed.Port() != "" && parsed.Port() != "80" &&
			parsed.Port() != "443" {
			t.Fatalf("Check(%q) = %q, %v", in, u, err)
		}
		if addr, err := netip.ParseAddr(parsed.Hostname()); err == nil && g.refusal(addr) != "" {
			t.Errorf("Check(%q) = %q, a refused address", in, u)
		}
	})
}
