package checks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gateway/agent/tool"
	"gateway/bus"
	"gateway/channels"
	"gateway/channels/channeltest"
)

// This file has the examples of docs/extending.md, so that they are compiled and tested.

// TestExtending checks that the code in the document is in this file.
func TestExtending(t *testing.T) {
	doc, err := os.ReadFile("../../../../docs/extending.md")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("extending_test.go")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, b := range block.FindAllStringSubmatch(string(doc), -1) {
		if b[1] != "go" {
			continue
		}
		n++
		if !strings.Contains(string(file), b[2]) {
			t.Errorf("this code of docs/extending.md is not in extending_test.go:\n%s", b[2])
		}
	}
	if n < 3 {
		t.Errorf("docs/extending.md has %d blocks of code, want those of a tool and of a channel", n)
	}
}

// A roll has the arguments of the tool "dice".
type roll struct {
	Sides int `json:"sides,omitempty" jsonschema:"of each die; by default 6"`
	Dice  int `json:"dice" jsonschema:"how many of them, 1 to 100"`
}

// newDice returns the tool "dice".
func newDice(random func(n int) int) tool.Tool {
	t := tool.New("dice", "Rolls dice. Use it when chance decides, and never make a number up.",
		tool.Pure, // it changes nothing: after a crash it may run again
		func(_ context.Context, _ tool.Call, args roll) (tool.Result, error) {
			if args.Dice < 1 || args.Dice > 100 || args.Sides < 0 {
				return tool.Result{}, fmt.Errorf("there are no %d dice with %d sides; want 1 to 100 dice",
					args.Dice, args.Sides)
			}
			var rolled []string
			for range args.Dice {
				rolled = append(rolled, fmt.Sprint(1+random(cmp.Or(args.Sides, 6))))
			}
			return tool.Result{Text: strings.Join(rolled, " ")}, nil
		})
	t.MinRole = bus.Guest // who may have the agent use it, unless a rule says otherwise
	return t
}

func TestDice(t *testing.T) {
	if _, err := tool.NewRegistry(newDice(rand.IntN)); err != nil {
		t.Errorf("the tool can't be offered: %v", err)
	}
	for args, want := range map[string]string{
		`{"dice":2}`:            "6 6",
		`{"dice":1,"sides":20}`: "20",
		`{"dice":0}`:            "",
	} {
		got, err := newDice(func(n int) int { return n - 1 }).Run(t.Context(),
			tool.Call{Args: json.RawMessage(args)})
		if got.Text != want || (err != nil) != (want == "") {
			t.Errorf("dice %s = %q, %v; want %q", args, got.Text, err, want)
		}
	}
	if got, err := newDice(rand.IntN).Run(t.Context(),
		tool.Call{Args: json.RawMessage(`{"dice":100}`)}); len(strings.Fields(got.Text)) != 100 {
		t.Errorf("100 dice = %q, %v", got.Text, err)
	}
}

// A Board is an account on a notice board. GET /notes?after=ID waits for new notes, and POST
// /notes writes one. Board implements [channels.Channel].
type Board struct {
	name, url, token string
	client           http.Client
}

// A note is a note of the board, in its JSON form.
type note struct {
	ID   int       `json:"id"`
	From string    `json:"from"`
	Text string    `json:"text"`
	Time time.Time `json:"time"`
}

// Run implements channels.Channel.
func (b *Board) Run(ctx context.Context, in channels.Intake) error {
	cursors, err := in.Cursors(ctx)
	if err != nil {
		return err
	}
	cursor := cmp.Or(cursors[""], "0")
	for {
		var notes []note
		if err := b.call(ctx, http.MethodGet, "?after="+cursor, nil, &notes); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err // Run is called again, after a while
		}
		in.Report(channels.Connected, "connected")
		batch := channels.Batch{Cursor: cursor}
		for _, n := range notes {
			batch.Cursor = strconv.Itoa(n.ID)
			batch.Messages = append(batch.Messages, bus.InboundMessage{
				ID: batch.Cursor, From: bus.Address{Account: b.name, Chat: n.From},
				Sender: bus.Sender{ID: n.From, Name: n.From}, Text: n.Text, Time: n.Time, Addressed: true,
			})
		}
		// The next request confirms these notes, so they must be stored first.
		if err := in.Publish(ctx, batch); err != nil {
			return err
		}
		cursor = batch.Cursor
	}
}

// Send implements channels.Channel.
func (b *Board) Send(ctx context.Context, part bus.Part) (string, error) {
	var written note
	err := b.call(ctx, http.MethodPost, "", note{From: part.To.Chat, Text: part.Text}, &written)
	return strconv.Itoa(written.ID), err
}

// call sends a request to the board, and turns a failure into an error of the channel contract.
func (b *Board) call(ctx context.Context, method, query string, body, result any) error {
	content, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("board: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, b.url+"/notes"+query,
		bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("board: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+b.token)
	resp, err := b.client.Do(req)
	if err != nil && method == http.MethodPost {
		// The connection broke: the board may have taken the note.
		return fmt.Errorf("board: %w: %w", channels.ErrUncertain, err)
	}
	if err != nil {
		return fmt.Errorf("board: %w", err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return json.NewDecoder(resp.Body).Decode(result)
	case http.StatusUnauthorized:
		return &channels.AccountError{Reason: "The board does not accept the token. Make a new one."}
	case http.StatusTooManyRequests:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // 0 if it doesn't say
		return &channels.RateError{After: time.Duration(seconds) * time.Second}
	case http.StatusForbidden:
		return channels.ErrRefused
	}
	return fmt.Errorf("board: %s", resp.Status)
}

// TestBoard checks that the channel keeps the contract of all channels.
func TestBoard(t *testing.T) {
	channeltest.Run(t, func(t *testing.T) channeltest.Fixture {
		p := newPinboard(t)
		return channeltest.Fixture{
			Channel:  &Board{name: "board", url: p.url, token: "s3cret-token"},
			Platform: p, Chat: bus.Address{Account: "board", Chat: "ann"}, Secret: "s3cret-token",
			NoAck: true, // the next question is the acknowledgement
		}
	})
}

// A pinboard is a fake of the board that keeps its state in memory.
type pinboard struct {
	url string

	mu      sync.Mutex
	notes   []note
	sent    []string
	changed chan struct{} // closed at the next change
	next    func(w http.ResponseWriter)
	hang    bool
	down    bool
}

func newPinboard(t *testing.T) *pinboard {
	p := &pinboard{changed: make(chan struct{})}
	srv := httptest.NewServer(p)
	t.Cleanup(srv.Close)
	p.url = srv.URL
	return p
}

// change changes the state and wakes the requests that wait for a change.
func (p *pinboard) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *pinboard) Deliver(text string) {
	p.change(func() {
		p.notes = append(p.notes, note{len(p.notes) + 1, "ann", text, time.Now()})
	})
}

func (p *pinboard) Texts() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.sent...)
}

func (p *pinboard) RateLimit(after time.Duration) {
	p.change(func() {
		p.next = func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", strconv.Itoa(int(after.Seconds())))
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
}

func (p *pinboard) Refuse() {
	p.change(func() {
		p.next = func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) }
	})
}

func (p *pinboard) Pending() int      { return 0 } // see NoAck
func (p *pinboard) Delete(string)     {}           // nothing can be edited
func (p *pinboard) Hang()             { p.change(func() { p.hang = true }) }
func (p *pinboard) SetOutage(on bool) { p.change(func() { p.down = on }) }

// ServeHTTP answers requests like the board.
func (p *pinboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var posted note
	body, err := io.ReadAll(r.Body) // all of it, so that the end of the connection is noticed
	if err == nil && r.Method == http.MethodPost {
		err = json.Unmarshal(body, &posted)
	}
	after, _ := strconv.Atoi(r.FormValue("after")) // 0 for a post
	for {
		p.mu.Lock()
		changed, done := p.changed, false
		switch {
		case err != nil:
			w.WriteHeader(http.StatusBadRequest)
			done = true
		case p.hang: // never answers
		case p.down:
			w.WriteHeader(http.StatusBadGateway)
			done = true
		case r.Method == http.MethodPost && p.next != nil:
			p.next(w)
			p.next, done = nil, true
		case r.Method == http.MethodPost:
			p.sent = append(p.sent, posted.Text)
			err = json.NewEncoder(w).Encode(note{ID: len(p.sent)})
			done = err == nil
		case after < len(p.notes):
			err = json.NewEncoder(w).Encode(p.notes[after:])
			done = err == nil
		}
		p.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}
