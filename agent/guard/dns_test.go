package guard

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// A fakeDNS is a name server on the loopback interface. For each name, it gives the configured
// answers in order and then repeats the last one.
type fakeDNS struct {
	conn *net.UDPConn

	mu      sync.Mutex
	answers map[string][][]string // by host
	asked   map[string]int
}

func newFakeDNS(t *testing.T) *fakeDNS {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	d := &fakeDNS{
		conn: conn, answers: make(map[string][][]string), asked: make(map[string]int),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.serve(t)
	}()
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return d
}

// answer makes the server answer for host with the addresses of A and AAAA records.
func (d *fakeDNS) answer(host string, answers ...[]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answers[host] = answers
}

// count returns how often the A records of host were requested.
func (d *fakeDNS) count(host string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked[host+" "+dnsmessage.TypeA.String()]
}

// resolver returns a resolver that asks only this server.
func (d *fakeDNS) resolver() *net.Resolver {
	return &net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "udp4", d.conn.LocalAddr().String())
		},
	}
}

func (d *fakeDNS) serve(t *testing.T) {
	buf := make([]byte, 1500)
	for {
		n, from, err := d.conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return // the connection was closed
		}
		var m dnsmessage.Message
		if err := m.Unpack(buf[:n]); err != nil || len(m.Questions) != 1 {
			t.Errorf("a bad question: %v", err)
			continue
		}
		m.Header = dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}
		m.Additionals = nil
		d.fill(&m)
		reply, err := m.Pack()
		if err == nil {
			_, err = d.conn.WriteToUDPAddrPort(reply, from)
		}
		if err != nil {
			t.Errorf("answer: %v", err)
		}
	}
}

// fill answers the question of m.
func (d *fakeDNS) fill(m *dnsmessage.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := m.Questions[0]
	host := q.Name.String()[:len(q.Name.String())-1]
	key := host + " " + q.Type.String()
	list, ok := d.answers[host]
	if !ok {
		m.RCode = dnsmessage.RCodeNameError
		return
	}
	now := list[min(d.asked[key], len(list)-1)]
	d.asked[key]++
	for _, text := range now {
		addr := netip.MustParseAddr(text)
		head := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
		switch {
		case addr.Is4() && q.Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers,
				dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: addr.As4()}})
		case addr.Is6() && q.Type == dnsmessage.TypeAAAA:
			m.Answers = append(m.Answers,
				dnsmessage.Resource{Header: head, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
		}
	}
}
