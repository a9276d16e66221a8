package whatsapptest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"go.mau.fi/whatsmeow/types"
)

// deliver queues n for d until it is acknowledged. The caller holds s.mu.
func (s *Server) deliver(d *device, n node) {
	w := &waiting{class: n.Tag, id: fmt.Sprint(n.Attrs["id"]), n: n}
	d.queue = append(d.queue, w)
	d.flush(false)
}

// flush sends the waiting stanzas if d's client is ready for them. The caller holds s.mu.
func (d *device) flush(offline bool) {
	if d.conn == nil || !d.conn.active {
		return
	}
	for _, w := range d.queue {
		if w.sent {
			continue
		}
		w.sent = true
		n := w.n
		if offline {
			n.Attrs = maps.Clone(n.Attrs)
			n.Attrs["offline"] = "1"
		}
		d.conn.send(n)
	}
}

// activate begins delivery, with the messages that came while the client was away. The caller holds
// s.mu.
func (d *device) activate() {
	d.conn.active = true
	count := strconv.Itoa(len(d.queue))
	if len(d.queue) > 0 {
		d.conn.send(node{Tag: "ib", Attrs: attrs{"from": types.ServerJID}, Content: []node{{
			Tag: "offline_preview", Attrs: attrs{"count": count, "appdata": "0",
				"message": strconv.Itoa(d.unread()), "notification": "0", "receipt": "0"},
		}}})
	}
	d.flush(true)
	d.conn.send(node{Tag: "ib", Attrs: attrs{"from": types.ServerJID}, Content: []node{{
		Tag: "offline", Attrs: attrs{"count": count},
	}}})
}

// acked removes a stanza from the queue. The caller holds s.mu.
func (d *device) acked(class, id string) {
	i := slices.IndexFunc(d.queue, func(w *waiting) bool {
		return w.class == class && w.id == id && w.sent
	})
	if i >= 0 {
		d.queue = slices.Delete(d.queue, i, i+1)
	}
}

// unread returns how many messages wait. The caller holds s.mu.
func (d *device) unread() int {
	n := 0
	for _, w := range d.queue {
		if w.class == "message" {
			n++
		}
	}
	return n
}

// toAll sends n to every connected device of a, without queueing it. The caller holds s.mu.
func (s *Server) toAll(a *account, n node) {
	for _, d := range a.devices {
		if d.conn != nil && d.conn.active {
			d.conn.send(n)
		}
	}
}

// deviceOf returns the device that an address names, or nil. The caller holds s.mu.
func (s *Server) deviceOf(j types.JID) *device {
	if a := s.accounts[j.ToNonAD()]; a != nil {
		return a.devices[j.Device]
	}
	return nil
}

// relay passes a message on to the devices for which it is encrypted, and acknowledges it unless a
// fault prevents that. The caller holds s.mu.
func (c *conn) relay(n *node) {
	s := c.s
	to, _ := n.Attrs["to"].(types.JID)
	id, _ := n.Attrs["id"].(string)
	g := s.groups[to]
	if to.User == "" || id == "" || to.Device == 0 && g == nil && s.accounts[to] == nil {
		s.violate("<message> %q to unknown %s", id, to)
		return
	}
	ack := attrs{"class": "message", "id": id, "from": to, "t": unix(time.Now())}
	if code := c.refusal(g); code != 0 {
		ack["error"] = strconv.Itoa(code)
		c.send(node{Tag: "ack", Attrs: ack})
		return
	}
	sent := c.copies(n, to, g)
	for d, copied := range sent {
		s.deliver(d, copied)
	}
	if hash, ok := n.Attrs["phash"].(string); ok && hash != s.deviceHash(c.device, to, g) ||
		!ok && s.misses(n, sent, to) {
		ack["phash"] = s.deviceHash(c.device, to, g)
	}
	if n.Attrs["category"] != "peer" {
		s.sends++
	}
	c.acknowledge(node{Tag: "ack", Attrs: ack})
}

// misses reports whether a message to a person was not encrypted for all of their devices. Only
// messages in groups say for which devices their client has encrypted them. The caller holds s.mu.
func (s *Server) misses(n *node, sent map[*device]node, to types.JID) bool {
	a := s.accounts[to]
	if _, ok := n.GetOptionalChildByTag("participants"); !ok || a == nil {
		return false
	}
	for _, d := range a.devices {
		if _, ok := sent[d]; !ok {
			return true
		}
	}
	return false
}

// copies returns the stanza that each device gets of a message. The caller holds s.mu.
func (c *conn) copies(n *node, to types.JID, g *group) map[*device]node {
	var shared []node           // for everybody
	per := map[*device][]node{} // for one device alone
	alone, resent := n.Attrs["participant"].(types.JID)
	if g == nil && to.Device != 0 {
		alone, resent = to, true
	}
	for _, child := range n.GetChildren() {
		switch {
		case child.Tag == "participants":
			for _, t := range child.GetChildren() {
				j, _ := t.Attrs["jid"].(types.JID)
				if d := c.s.deviceOf(j); d != nil {
					per[d] = t.GetChildren()
				} else {
					c.s.violate("a message is encrypted for %s, which is not linked", j)
				}
			}
		case child.Tag == "enc" && resent:
			if d := c.s.deviceOf(alone); d != nil {
				per[d] = []node{child}
			}
		case child.Tag == "enc" && n.Attrs["category"] == "peer":
			// It is for the phone of the client's owner, which is not simulated.
		case child.Tag == "enc" || child.Tag == "device-identity" || child.Tag == "meta":
			shared = append(shared, child)
		case child.Tag != "tctoken" && child.Tag != "cstoken":
			c.s.violate("unknown part <%s> of a message", child.Tag)
		}
	}
	out := make(map[*device]node)
	for _, d := range c.recipients(per, shared, g, resent) {
		content := append(slices.Clone(per[d]), shared...)
		c.s.spoil(d, content)
		out[d] = node{Tag: "message", Attrs: c.head(n, to, g, d), Content: content}
	}
	return out
}

// recipients returns the devices that get a message: those for which it is encrypted. In a
// group, all other devices get it, too, because they have the sender's key from before. The
// caller holds s.mu.
func (c *conn) recipients(per map[*device][]node, shared []node, g *group, resent bool) []*device {
	all := slices.Collect(maps.Keys(per))
	group := g != nil && !resent &&
		slices.ContainsFunc(shared, func(n node) bool { return n.Tag == "enc" })
	if !group {
		return all
	}
	for _, a := range g.members {
		for _, d := range a.devices {
			if d != c.device && per[d] == nil {
				all = append(all, d)
			}
		}
	}
	return all
}

// head returns the attributes with which d gets a message of c. The caller holds s.mu.
func (c *conn) head(n *node, to types.JID, g *group, d *device) attrs {
	from := c.device
	a := attrs{"id": n.Attrs["id"], "t": unix(c.s.now()), "type": n.Attrs["type"],
		"notify": from.of.name}
	if edit, ok := n.Attrs["edit"]; ok {
		a["edit"] = edit
	}
	switch {
	case g != nil && g.byPhone:
		a["from"], a["participant"], a["addressing_mode"] = g.jid, from.pn(), "pn"
		if !from.of.byPhone {
			a["participant_lid"] = from.of.lid
		}
	case g != nil:
		a["from"], a["participant"], a["addressing_mode"] = g.jid, from.lid(), "lid"
		a["participant_pn"] = from.of.pn
	case d.of == from.of: // the account's other devices show the messages that this one has sent
		a["from"], a["recipient"] = from.lid(), to.ToNonAD()
		if other := c.s.accounts[to.ToNonAD()]; other != nil {
			a["recipient"], a["peer_recipient_pn"] = other.lid, other.pn
		}
	case from.of.byPhone:
		a["from"] = from.pn()
	default:
		a["from"], a["sender_pn"] = from.lid(), from.of.pn
	}
	return a
}

// deviceHash returns the hash over the devices that a message should reach. The caller
// holds s.mu.
func (s *Server) deviceHash(from *device, to types.JID, g *group) string {
	var all []types.JID
	add := func(a *account, byPhone bool) {
		for id := range a.devices {
			if byPhone {
				all = append(all, at(a.pn, id))
			} else {
				all = append(all, at(a.lid, id))
			}
		}
	}
	if g != nil {
		for _, a := range g.members {
			add(a, g.byPhone)
		}
	} else {
		if a := s.accounts[to.ToNonAD()]; a != nil && a != from.of {
			add(a, false)
		}
		add(from.of, false)
	}
	return listHash(all)
}

// receipt passes a receipt on to its recipient. A delivery receipt acknowledges the message. The
// caller holds s.mu.
func (c *conn) receipt(n *node) {
	s := c.s
	id, _ := n.Attrs["id"].(string)
	kind, _ := n.Attrs["type"].(string)
	ack := attrs{"class": "receipt", "id": id, "from": n.Attrs["to"]}
	if kind != "" {
		ack["type"] = kind
	}
	c.send(node{Tag: "ack", Attrs: ack})
	out := attrs{"id": id, "from": c.device.lid(), "t": unix(time.Now())}
	if c.device.of.byPhone {
		out["from"] = c.device.pn()
	}
	switch kind {
	case "", "inactive", "sender":
		c.device.acked("message", id)
	case "read", "read-self", "retry":
	case "peer_msg", "hist_sync":
		return
	default:
		s.violate("unknown receipt %s", n)
		return
	}
	if kind == "sender" || kind == "read-self" {
		return
	}
	if kind != "" {
		out["type"] = kind
	}
	to, _ := n.Attrs["to"].(types.JID)
	if p, ok := n.Attrs["participant"].(types.JID); ok {
		out["from"], out["participant"] = to, c.device.lid()
		to = p
	} else if s.groups[to] != nil {
		s.violate("receipt for a group without a participant: %s", n)
		return
	}
	a := s.accounts[to.ToNonAD()]
	if a == nil || a == c.device.of && kind == "read" {
		s.violate("receipt %q to %s, which is not another account", kind, to)
		return
	}
	pass := func() {
		for _, d := range a.devices {
			if d != c.device && (to.Device == 0 || to.Device == d.id) {
				s.deliver(d, node{Tag: "receipt", Attrs: maps.Clone(out), Content: n.Content})
			}
		}
	}
	if kind == "retry" && s.holdRetries && c.device.of == s.bot {
		s.heldRetries = append(s.heldRetries, pass)
		return
	}
	pass()
}
