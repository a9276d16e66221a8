package whatsapptest

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"go.mau.fi/whatsmeow/types"
)

// iq answers a query. The caller holds s.mu.
func (c *conn) iq(n *node) {
	s := c.s
	if n.Attrs["type"] == "result" || n.Attrs["type"] == "error" {
		c.pairAnswer(n)
		return
	}
	space, _ := n.Attrs["xmlns"].(string)
	var child node
	if children := n.GetChildren(); len(children) > 0 {
		child = children[0]
	}
	if c.device == nil && space != "md" && space != "w:p" {
		s.violate("a client that is not logged in asks for %s", space)
		return
	}
	switch {
	case space == "w:p":
		if !s.silent || c.device == nil || c.device.of != s.bot {
			c.result(n)
		}
	case space == "passive" && (child.Tag == "active" || child.Tag == "passive"):
		c.result(n)
		if c.device.conn == c {
			c.device.activate()
		}
	case space == "encrypt":
		c.encryption(n, child)
	case space == "usync":
		c.result(n, s.usync(n))
	case space == "w:m":
		c.result(n, node{Tag: "media_conn", Attrs: attrs{"auth": mediaAuth, "ttl": "300",
			"auth_ttl": "300", "max_buckets": "12"}, Content: []node{
			{Tag: "host", Attrs: attrs{"hostname": "media.cdn.whatsapp.net"}},
			{Tag: "host", Attrs: attrs{"hostname": "mmg.whatsapp.net"}},
		}})
	case space == "w:g2" && child.Tag == "query":
		c.groupInfo(n)
	case space == "w:g2" && child.Tag == "leave" && n.Attrs["type"] == "set":
		c.leaveGroup(n, child)
	case space == "privacy" && child.Tag == "tokens":
		c.result(n)
	case space == "privacy" && child.Tag == "privacy":
		c.result(n, node{Tag: "privacy", Content: []node{
			{Tag: "category", Attrs: attrs{"name": "readreceipts", "value": "all"}},
		}})
	case space == "md" && child.Tag == "link_code_companion_reg":
		c.linkCode(n, child)
	case space == "md" && c.passkeyQuery(n, child):
	default:
		s.violate("unknown query %s/%s", space, child.Tag)
		c.refuse(n, 501, "feature-not-implemented")
	}
}

// result answers a query.
func (c *conn) result(n *node, content ...node) {
	r := node{Tag: "iq", Attrs: attrs{
		"type": "result", "id": n.Attrs["id"], "from": types.ServerJID,
	}}
	if to, ok := n.Attrs["to"]; ok {
		r.Attrs["from"] = to
	}
	if len(content) > 0 {
		r.Content = content
	}
	c.send(r)
}

// refuse answers a query with an error.
func (c *conn) refuse(n *node, code int, text string) {
	c.send(node{Tag: "iq", Attrs: attrs{
		"type": "error", "id": n.Attrs["id"], "from": n.Attrs["to"],
	}, Content: []node{{Tag: "error", Attrs: attrs{"code": strconv.Itoa(code), "text": text}}}})
}

// encryption stores and returns the public keys with which sessions begin. The caller holds s.mu.
func (c *conn) encryption(n *node, child node) {
	d := c.device
	switch {
	case n.Attrs["type"] == "get" && child.Tag == "count":
		// A client creates 812 keys at once if the server has none, and 50 if it has one. With 50,
		// linking is five times as fast.
		c.result(n, node{Tag: "count", Attrs: attrs{"value": strconv.Itoa(max(1, len(d.preKeys)))}})
	case n.Attrs["type"] == "set":
		if list, ok := n.GetOptionalChildByTag("list"); ok {
			d.preKeys = append(d.preKeys, list.GetChildren()...)
		}
		if signed, ok := n.GetOptionalChildByTag("skey"); ok {
			d.signedKey = signed
		}
		c.result(n)
	case child.Tag == "key":
		if c.s.failKeys > 0 && d.of == c.s.bot {
			c.s.failKeys--
			c.refuse(n, 503, "service-unavailable")
			return
		}
		var users []node
		for _, u := range child.GetChildren() {
			users = append(users, c.s.bundle(u))
		}
		c.result(n, node{Tag: "list", Content: users})
	default:
		c.s.violate("unknown query encrypt/%s", child.Tag)
		c.refuse(n, 501, "feature-not-implemented")
	}
}

// bundle returns the keys of the device that u asks for. The caller holds s.mu.
func (s *Server) bundle(u node) node {
	j, _ := u.Attrs["jid"].(types.JID)
	answer := node{Tag: "user", Attrs: attrs{"jid": j}}
	d := s.deviceOf(j)
	if d == nil || d == s.keyless {
		answer.Content = []node{{Tag: "error", Attrs: attrs{"code": "404", "text": "not-found"}}}
		return answer
	}
	parts := []node{
		{Tag: "registration", Content: d.registration}, {Tag: "type", Content: []byte{5}},
		{Tag: "identity", Content: d.identity}, d.signedKey,
	}
	if len(d.preKeys) > 0 {
		parts = append(parts, d.preKeys[0])
		d.preKeys = d.preKeys[1:]
	}
	answer.Content = parts
	return answer
}

// usync answers requests for information about users. The caller holds s.mu.
func (s *Server) usync(n *node) node {
	sync := n.GetChildByTag("usync")
	query, list := sync.GetChildByTag("query"), sync.GetChildByTag("list")
	var wanted []string
	for _, q := range query.GetChildren() {
		wanted = append(wanted, q.Tag)
	}
	var users []node
	for _, u := range list.GetChildren() {
		j, _ := u.Attrs["jid"].(types.JID)
		answer := node{Tag: "user", Attrs: attrs{"jid": j}}
		var parts []node
		if a := s.accounts[j]; a != nil {
			if slices.Contains(wanted, "devices") {
				parts = append(parts, a.deviceList())
			}
			if slices.Contains(wanted, "lid") && !a.hidden {
				parts = append(parts, node{Tag: "lid", Attrs: attrs{"val": a.lid}})
			}
		}
		answer.Content = parts
		users = append(users, answer)
	}
	return node{Tag: "usync", Content: []node{{Tag: "list", Content: users}}}
}

func (a *account) deviceList() node {
	var devices []node
	for id := range a.devices {
		n := strconv.Itoa(int(id))
		devices = append(devices, node{Tag: "device", Attrs: attrs{"id": n, "key-index": n}})
	}
	return node{Tag: "devices", Content: []node{{Tag: "device-list", Content: devices}}}
}

// groupInfo describes a group to its members. The caller holds s.mu.
func (c *conn) groupInfo(n *node) {
	to, _ := n.Attrs["to"].(types.JID)
	g := c.s.groups[to]
	switch {
	case g == nil:
		c.refuse(n, 404, "item-not-found")
		return
	case !slices.Contains(g.members, c.device.of):
		c.refuse(n, 403, "forbidden")
		return
	}
	c.s.groupQueries++
	c.result(n, g.wire())
}

// wire returns a group as the protocol describes it. The caller holds s.mu.
func (g *group) wire() node {
	mode := "lid"
	if g.byPhone {
		mode = "pn"
	}
	var parts []node
	for _, a := range g.members {
		if g.byPhone {
			parts = append(parts, node{Tag: "participant", Attrs: attrs{"jid": a.pn, "lid": a.lid}})
		} else {
			parts = append(parts, node{Tag: "participant",
				Attrs: attrs{"jid": a.lid, "phone_number": a.pn}})
		}
	}
	if g.timer > 0 {
		parts = append(parts, node{Tag: "ephemeral",
			Attrs: attrs{"expiration": strconv.Itoa(g.timer)}})
	}
	return node{Tag: "group", Attrs: attrs{"id": g.jid.User, "subject": g.title,
		"creation": "1700000000", "s_t": "1700000000", "addressing_mode": mode}, Content: parts}
}

// leaveGroup makes an account leave a group. The caller holds s.mu.
func (c *conn) leaveGroup(n *node, child node) {
	list := child.GetChildrenByTag("group")
	if to, _ := n.Attrs["to"].(types.JID); to != types.GroupServerJID || len(list) != 1 {
		c.s.violate("a query to leave %d groups, to %s", len(list), to)
		c.refuse(n, 400, "bad-request")
		return
	}
	id, _ := list[0].Attrs["id"].(types.JID)
	g := c.s.groups[id]
	switch {
	case g == nil:
		c.refuse(n, 404, "item-not-found")
	case !slices.Contains(g.members, c.device.of):
		c.refuse(n, 403, "forbidden")
	case c.s.refuseLeave != 0:
		c.refuse(n, c.s.refuseLeave, "refused")
	default:
		g.remove(c.device.of)
		c.result(n, node{Tag: "leave", Content: []node{{Tag: "group", Attrs: attrs{"id": id}}}})
	}
}

// listHash returns the hash of a list of devices, which clients and server compare.
func listHash(devices []types.JID) string {
	var names []string
	for _, d := range devices {
		names = append(names, d.ADString())
	}
	slices.Sort(names)
	sum := sha256.Sum256([]byte(strings.Join(names, "")))
	return "2:" + base64.RawStdEncoding.EncodeToString(sum[:6])
}
