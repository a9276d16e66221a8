package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"gateway/agent/tool"
)

// During a call, the server may ask the person whose turn makes the call. The turn is then
// suspended like any other turn that waits for an answer. In versions of the protocol up to
// 2025-11-25, the server asks in the middle of the call: the call stays open in memory and ends
// with the process. In later versions, the server ends the call with its questions, and the gateway
// makes the call again with the answers. That survives restarts.

// maxLife limits the life of a request, including the time in which a person is asked.
const maxLife = time.Hour

// A liveRequest is a request to a server that is under way.
type liveRequest struct {
	person bool          // somebody can be asked
	asks   chan asking   // questions of the server
	over   chan struct{} // closed when the request has ended
	cancel context.CancelCauseFunc

	answer chan<- *sdk.ElicitResult // of the asking that the person sees

	// Set before over is closed:
	result *sdk.CallToolResult
	links  []request // links to open before the call is made again
	err    error

	// liveRequests.mu guards:
	ended <-chan struct{} // closed when the attempt that is under way has ended
	limit *time.Timer     // ends the attempt; stopped while a person is asked
	asked bool
	times int      // how often the server has asked
	alone bool     // it holds the slot liveRequests.turn
	notes []string // for the model, each once
}

// An asking is a question that a server asks in the middle of a call.
type asking struct {
	request
	answer chan<- *sdk.ElicitResult // with room for one
}

type liveKey struct{} // context key of a call's liveRequest

// A heldKey identifies a call whose server waits for a person.
type heldKey struct {
	turn int64
	id   string
}

// liveRequests holds the requests to one server that are under way. A server that asks in the
// middle of a call does not name the call. So requests to such a server run one at a time, except
// for those that wait for a person.
type liveRequests struct {
	turn chan struct{} // slot of the request that runs alone; has room for one

	mu     sync.Mutex
	inCall bool // the server asks in the middle of calls
	live   map[*liveRequest]bool
	held   map[heldKey]*liveRequest
}

func newLiveRequests() *liveRequests {
	return &liveRequests{turn: make(chan struct{}, 1), live: make(map[*liveRequest]bool),
		held: make(map[heldKey]*liveRequest)}
}

// begin waits until the request of ctx may run, and records an attempt of it. limit starts the
// timer that ends the attempt. The caller must call end after the attempt. begin returns an error
// if ctx ends first.
func (a *liveRequests) begin(
	ctx context.Context, limit func() *time.Timer,
) (end func(), err error) {
	r, ok := ctx.Value(liveKey{}).(*liveRequest)
	if !ok {
		r = &liveRequest{}
	}
	a.mu.Lock()
	alone := a.inCall
	a.mu.Unlock()
	if alone {
		select {
		case a.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.live[r] = true
	r.ended, r.limit, r.alone = ctx.Done(), limit(), alone
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.live, r)
		r.limit.Stop()
		a.yield(r)
	}, nil
}

// yield releases the slot of r, if it holds it, so that another request can run. a.mu is held.
func (a *liveRequests) yield(r *liveRequest) {
	if r.alone {
		r.alone = false
		<-a.turn
	}
}

// claim returns the request during which the server asks, and stops its timer. It returns nil if no
// request, or more than one, can be the one. A request whose attempt has ended can't be the one,
// even if its end is not recorded yet. first reports whether the server asks in the middle of a
// call for the first time.
func (a *liveRequests) claim() (live *liveRequest, first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first, a.inCall = !a.inCall, true
	var list []*liveRequest
	for r := range a.live {
		if !r.asked && !isClosed(r.ended) {
			list = append(list, r)
		}
	}
	if len(list) != 1 || !list[0].limit.Stop() {
		for _, r := range list {
			r.note("the server asked for input while several calls were under way, " +
				"so nobody was asked; make the call again, alone")
		}
		return nil, first
	}
	list[0].asked = true
	list[0].times++
	a.yield(list[0])
	return list[0], first
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// resume waits until r may run again, and restarts its timer.
func (a *liveRequests) resume(r *liveRequest, limit time.Duration) {
	alone := false
	select {
	case a.turn <- struct{}{}:
		alone = true
	case <-r.ended:
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r.asked, r.alone = false, alone
	if !a.live[r] { // it has ended meanwhile
		a.yield(r)
		return
	}
	r.limit.Reset(limit)
}

// refuse adds a note for the model that nobody could be asked. If the server has asked more than
// maxRounds times during r, refuse ends r.
func (a *liveRequests) refuse(r *liveRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r.note(noPerson)
	if r.times > maxRounds && r.cancel != nil {
		r.note(fmt.Sprintf("the server asked more than %d times, so the call was ended", maxRounds))
		r.cancel(errForsaken)
	}
}

// note adds a note for the model, unless r has it already. liveRequests.mu is held.
func (r *liveRequest) note(text string) {
	if !slices.Contains(r.notes, text) {
		r.notes = append(r.notes, text)
	}
}

// notes returns the notes for the model.
func (a *liveRequests) notes(r *liveRequest) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return r.notes
}

// hold keeps r until the person has answered. It cancels an older request of the same call. If r is
// nil, it only cancels.
func (a *liveRequests) hold(key heldKey, r *liveRequest) {
	if old := a.release(key); old != nil && old != r {
		old.cancel(errForsaken)
	}
	if r == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held[key] = r
}

// release returns the request that is held for a call, or nil.
func (a *liveRequests) release(key heldKey) *liveRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.held[key]
	delete(a.held, key)
	return r
}

var errForsaken = errors.New("the turn has ended")

// elicit handles a question that the server asks in the middle of a call. It returns when the
// person has answered or the call has ended.
func (s *server) elicit(ctx context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
	wanted, err := newRequest("", r.Params)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	}
	live, first := s.requests.claim()
	if first {
		s.status.update(func() { s.status.dialect.Asks = true })
		s.review.save(ctx)
	}
	if live == nil {
		return &sdk.ElicitResult{Action: cancel}, nil
	}
	defer s.requests.resume(live, s.Timeout)
	if !live.person {
		s.requests.refuse(live)
		return &sdk.ElicitResult{Action: decline}, nil
	}
	answer := make(chan *sdk.ElicitResult, 1)
	// After the question, a nil channel takes its case out of the select.
	for asks := live.asks; ; asks = nil {
		select {
		case asks <- asking{wanted, answer}:
		case result := <-answer:
			return result, nil
		case <-live.ended:
			return &sdk.ElicitResult{Action: cancel}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

const noPerson = "the server asked for input, and the gateway declined, because nobody can be " +
	"asked during this work"

// A toolCall is one call of a tool, with all questions that the server asks during it.
type toolCall struct {
	caller *caller
	reader string // name of the tool that reads resources, or ""
	name   string
	d      definition
	call   tool.Call
}

// run makes the call, or continues it with the person's answer. Its result is that of the call, or
// makes the turn wait for the person.
func (x *toolCall) run(ctx context.Context) (tool.Result, error) {
	q := &elicitation{}
	params := &sdk.CallToolParams{Name: x.d.Name, Arguments: x.call.Args}
	var live *liveRequest
	if x.call.Reply == nil {
		// The model makes a new call. An older request of the same call, if any, has nobody to
		// answer it.
		x.caller.requests.hold(x.key(), nil)
	} else {
		err := x.restore(q)
		if q.Running {
			if live = x.caller.requests.release(x.key()); live == nil {
				return x.fail(fmt.Errorf("the call has ended before the person answered%s",
					outcome(x.d.effect())), nil)
			}
		}
		if err != nil || len(q.Requests) > 0 {
			return x.wait(q, live, err)
		}
		if q.Running {
			live.answer <- q.Answers[""]
		} else if q.Links && !q.accepted() {
			return x.fail(errors.New("the person has not opened the link that the server requires; "+
				"nothing was done"), nil)
		}
		// The server continues with its own state and the answers.
		q.fillIn(params)
	}
	var notes []string
	for {
		if live == nil {
			live = x.begin(ctx, params)
		}
		select {
		case a := <-live.asks:
			// The call goes on while the turn is suspended. wait holds it until the answer comes.
			live.answer = a.answer
			q.Running, q.Requests, q.Answers = true, []request{a.request}, nil
			q.Rounds++
			return x.wait(q, live, nil)
		case <-live.over:
		case <-ctx.Done():
			live.cancel(context.Cause(ctx))
			<-live.over
		}
		notes = append(notes, x.caller.requests.notes(live)...)
		if live.err != nil {
			return x.fail(live.err, notes)
		}
		if err := q.begin(live); err != nil {
			return x.fail(fmt.Errorf("the MCP server %s %w", x.caller.Name, err), notes)
		}
		if len(q.Requests) == 0 {
			return x.finish(live, q, notes)
		}
		if x.alone() {
			notes = append(notes, noPerson)
			q.end(decline)
			if q.Links {
				return x.fail(errors.New("the server requires that a person opens a link"), notes)
			}
			q.fillIn(params)
			live = nil
			continue
		}
		return x.wait(q, nil, nil)
	}
}

// alone reports whether nobody can be asked: no person began the turn, or it is a sub-agent's.
func (x *toolCall) alone() bool { return x.call.Proactive || x.call.Session.Task != "" }

func (x *toolCall) key() heldKey { return heldKey{x.call.Turn, x.call.ID} }

// restore puts into q the elicitation that the person has answered, and adds the answer.
func (x *toolCall) restore(q *elicitation) error {
	if err := json.Unmarshal(x.call.Reply.State, q); err != nil {
		return fmt.Errorf("the server's question can't be read: %w", err)
	}
	if len(q.Requests) == 0 {
		return errors.New("the server's question is missing")
	}
	return q.addAnswer(x.call.Reply)
}

// wait returns the result that makes the turn wait for the answer to q. A call that is under way
// is held meanwhile.
func (x *toolCall) wait(q *elicitation, live *liveRequest, err error) (tool.Result, error) {
	var w *tool.Wait
	if err == nil && q.Rounds > maxRounds {
		err = fmt.Errorf("the server asks more than %d times", maxRounds)
	}
	if err == nil {
		w, err = q.wait(x.caller.Name, x.d.Name, x.call.Group)
	}
	if live != nil && err == nil {
		x.caller.requests.hold(x.key(), live)
	} else if live != nil {
		live.cancel(err)
	}
	if err != nil {
		return x.fail(err, nil)
	}
	if q.Running {
		w.Cancel = func() { x.caller.requests.hold(x.key(), nil) }
	}
	return tool.Result{Wait: w}, nil
}

// fail returns an error for the model.
func (x *toolCall) fail(err error, notes []string) (tool.Result, error) {
	if len(notes) > 0 {
		err = fmt.Errorf("%w (%s)", err, strings.Join(notes, "; "))
	}
	return tool.Result{Foreign: x.caller.source()}, err
}

// finish returns the result of the call for the model.
func (x *toolCall) finish(live *liveRequest, q *elicitation, notes []string) (tool.Result, error) {
	if len(q.Answers) > 0 && !q.accepted() {
		notes = append(notes, "the server asked the person for input, and the person gave none")
	}
	r, err := (&builder{name: x.name, reader: x.reader}).convert(x.caller.Server, live.result)
	if err != nil {
		return x.fail(err, notes)
	}
	for _, n := range notes {
		r.Text += "\n(" + n + ")"
	}
	return r, nil
}

// begin makes the call on a goroutine of its own, because it goes on while a person is asked.
func (x *toolCall) begin(ctx context.Context, params *sdk.CallToolParams) *liveRequest {
	live := &liveRequest{person: !x.alone(), asks: make(chan asking), over: make(chan struct{})}
	// The turn may end its part of the call while the call goes on.
	ctx, live.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	go func() {
		defer close(live.over)
		defer live.cancel(nil)
		defer func() {
			if p := recover(); p != nil {
				x.caller.opts.Logger.ErrorContext(ctx, "mcp call panicked", "server", x.caller.Name,
					"panic", fmt.Sprint(p))
				live.err = errors.New("the call crashed")
			}
		}()
		live.err = x.caller.use(context.WithValue(ctx, liveKey{}, live), x.d.effect(),
			func(ctx context.Context, session *sdk.ClientSession) (err error) {
				live.result, err = session.CallTool(ctx, params)
				if live.links = linksOf(err); live.links != nil {
					return nil
				}
				return err
			})
	}()
	return live
}

// linksOf returns the links that err requires a person to open, or nil. It also returns nil if one
// of them is not valid, so that the model reads the error itself.
func linksOf(err error) (list []request) {
	refusal, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || refusal.Code != sdk.CodeURLElicitationRequired {
		return nil
	}
	var data struct {
		Elicitations []*sdk.ElicitParams `json:"elicitations"`
	}
	if json.Unmarshal(refusal.Data, &data) != nil || len(data.Elicitations) > maxFields {
		return nil
	}
	for i, p := range data.Elicitations {
		r, err := newRequest(fmt.Sprint(i), p)
		if err != nil || r.Link == "" {
			return nil
		}
		list = append(list, r)
	}
	return list
}

// begin sets the requests of q to the questions with which the server has ended a call. q has no
// requests if the call is complete. The text of an error continues "the MCP server NAME".
func (q *elicitation) begin(live *liveRequest) error {
	q.Running, q.Links, q.Server, q.Requests = false, live.links != nil, "", live.links
	if live.links == nil && !live.result.NeedsInput() {
		return nil
	}
	q.Rounds++
	q.Answers = nil
	if q.Rounds > maxRounds {
		return fmt.Errorf("asks more than %d times", maxRounds)
	}
	if live.links != nil {
		return nil
	}
	wanted := live.result.InputRequests
	switch {
	case len(wanted) == 0:
		return errors.New("is busy; try again later")
	case len(wanted) > maxFields || len(live.result.RequestState) > maxState:
		return errors.New("asks for too much at once")
	}
	q.Server = live.result.RequestState
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		p, ok := wanted[id].(*sdk.ElicitParams)
		if !ok {
			return errors.New("asks for input, which this agent does not give")
		}
		r, err := newRequest(id, p)
		if err != nil {
			return fmt.Errorf("asks for input in a form that is not valid: %w", err)
		}
		q.Requests = append(q.Requests, r)
	}
	return nil
}

// fillIn adds the answers to the parameters of the next call. The answers to links, and to a server
// in the middle of a call, do not go into a new call.
func (q *elicitation) fillIn(params *sdk.CallToolParams) {
	if q.Links || q.Running {
		return
	}
	params.RequestState, params.InputResponses = q.Server, make(sdk.InputResponseMap)
	for id, a := range q.Answers {
		params.InputResponses[id] = a
	}
}
