package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"gateway/agent/audit"
	"gateway/agent/policy"
	"gateway/agent/question"
	"gateway/session"
	"gateway/store"
)

const sayNoQuestion = "Nothing is waiting under that code. It may have been decided or expired."

// Denied is what the model reads about a denied tool call.
const Denied = "This was denied, so it was not done. Don't try it in another way; ask the " +
	"user what to do instead."

// decisions has the commands that decide questions, and those that halt or restart the gateway.
type decisions struct{ *Deps }

// approve answers /approve CODE.
func (d decisions) approve(ctx context.Context, r *Request) (Reply, error) {
	return d.decide(ctx, r, question.Approve, r.Args,
		func(tx *store.Tx, q *question.Question) (Reply, error) {
			return d.settle(tx, r, q, question.Granted, "", "Approved.")
		})
}

// deny answers /deny CODE.
func (d decisions) deny(ctx context.Context, r *Request) (Reply, error) {
	return d.decide(ctx, r, question.Approve, r.Args,
		func(tx *store.Tx, q *question.Question) (Reply, error) {
			return d.settle(tx, r, q, question.Refused, Denied, "Denied.")
		})
}

// errUndecided reports that a question stays open. The accompanying reply says why.
var errUndecided = errors.New("the question stays open")

// settle stores the decision about a tool call.
func (d decisions) settle(
	tx *store.Tx, r *Request, q *question.Question, state question.State, answer, say string,
) (Reply, error) {
	if !r.Message.Role.AtLeast(q.MinRole) {
		return Reply{Text: fmt.Sprintf("Only %s can decide that.", rolesFrom(q.MinRole))},
			errUndecided
	}
	decided, err := question.Decide(tx, q, state, answer, senderID(r.Message))
	if err == nil && decided {
		e := audit.NewEntry(r.Message, strings.ToLower(strings.TrimSuffix(say, ".")), q.Text)
		// The decision belongs to the conversation that has asked, wherever it was made.
		e.Where = q.Address
		err = audit.Add(tx, e, d.Now())
	}
	return Reply{Text: say}, err
}

// answer answers /answer CODE TEXT, which buttons send.
func (d decisions) answer(ctx context.Context, r *Request) (Reply, error) {
	code, text := FirstWord(r.Args)
	return d.decide(ctx, r, question.Ask, code,
		func(tx *store.Tx, q *question.Question) (Reply, error) {
			if !q.MayAnswer(&r.Message) {
				return Reply{Text: "I have asked somebody else."}, errUndecided
			}
			if text == "" {
				return Reply{Text: "Write your answer after the code, or just send it."}, errUndecided
			}
			chosen := d.Sessions.Answer(q, text)
			_, err := question.Decide(tx, q, question.Answered, chosen, senderID(r.Message))
			what := chosen
			if q.Continues == nil {
				_, what, _ = strings.Cut(chosen, ": ")
			}
			return Reply{Text: "Noted: " + what}, err
		})
}

// decide calls fn to decide the open question of the given kind and code, and lets its turn
// continue.
func (d decisions) decide(
	ctx context.Context, r *Request, kind question.Kind, code string,
	fn func(tx *store.Tx, q *question.Question) (Reply, error),
) (Reply, error) {
	if strings.TrimSpace(code) == "" {
		return Reply{Text: fmt.Sprintf("Which one? Send `/%s CODE`.", r.Name)}, nil
	}
	var decided session.Key
	return r.Commit(ctx, func(tx *store.Tx) (Reply, error) {
		// The transaction may run again.
		decided = session.Key{}
		q, reply, err := d.open(tx, kind, code)
		if q == nil {
			return reply, err
		}
		reply, err = fn(tx, q)
		if errors.Is(err, errUndecided) {
			return reply, nil
		}
		if err == nil {
			decided, _, err = session.Named(tx, q.Session)
		}
		return reply, err
	}, func() {
		if !decided.IsZero() {
			d.Sessions.Decided(decided)
		}
	})
}

// open returns the open question of the given kind and code, or the reply if there is none.
func (d decisions) open(
	tx *store.Tx, kind question.Kind, code string,
) (*question.Question, Reply, error) {
	q, err := question.ByCode(tx, code)
	switch {
	case errors.Is(err, question.ErrNone):
		return nil, Reply{Text: sayNoQuestion}, nil
	case err != nil:
		return nil, Reply{}, err
	case q.Kind != kind:
		return nil, Reply{Text: sayNoQuestion}, nil
	case q.State == question.Open && !d.Now().Before(q.Expires), q.State == question.Expired:
		return nil, Reply{Text: "That question has expired."}, nil
	case q.State != question.Open:
		return nil, Reply{Text: "That was already decided."}, nil
	}
	return q, Reply{}, nil
}

// halt answers /halt.
func (d decisions) halt(ctx context.Context, r *Request) (Reply, error) {
	return r.Commit(ctx, func(tx *store.Tx) (Reply, error) {
		ok, err := policy.SetHalt(tx, senderID(r.Message), d.Now())
		if err != nil || !ok {
			return Reply{Text: "Everything is halted already. `/resume` continues."}, err
		}
		if err := r.audit(tx, "halted", ""); err != nil {
			return Reply{}, err
		}
		return Reply{Text: "Halted: I call no model and use no tool, in any conversation, until " +
			"somebody sends `/resume`."}, nil
	})
}

// resume answers /resume.
func (d decisions) resume(ctx context.Context, r *Request) (Reply, error) {
	return r.Commit(ctx, func(tx *store.Tx) (Reply, error) {
		ok, err := policy.ClearHalt(tx)
		if err != nil || !ok {
			return Reply{Text: "Nothing is halted."}, err
		}
		if err := r.audit(tx, "resumed", ""); err != nil {
			return Reply{}, err
		}
		return Reply{Text: "I answer again. The halt has ended what I was working on."}, nil
	})
}
