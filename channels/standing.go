package channels

import (
	"gateway/bus"
	"gateway/store"
)

// SetPolicy says from now on who may write to an account.
func (g *Gate) SetPolicy(account string, p Policy) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.policies[account] = p
}

// policy returns who may write to an account: nobody to one that there is not.
func (g *Gate) policy(account string) Policy {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.policies[account]
}

// judgeBy decides on m by what is known. It returns what is known of the sender.
func (p *Policy) judgeBy(m *bus.InboundMessage, ks *knowledge) (known, verdict) {
	who := ks.people[identity{m.From.Account, m.Sender.ID}]
	m.Before = ks.moves[identity{m.From.Account, m.From.Chat}]
	return who, p.judge(m, who)
}

// Standing reports whether the sender of m may write to its conversation now, and sets the Person
// and the Role of m to what they are now: what somebody has asked for may be done later, when they
// may less, or nothing.
func (g *Gate) Standing(q store.Queryer, m *bus.InboundMessage) (bool, error) {
	ks, err := g.look(q)
	if err != nil {
		return false, err
	}
	m.Addressed = true
	p := g.policy(m.From.Account)
	_, v := p.judgeBy(m, ks)
	return v == admitted, nil
}
