package terminal

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gateway/channels/terminal/screen"
)

// A chatFixture runs chatLines with a screen. The test plays the gateway at the other end of its
// connection.
type chatFixture struct {
	t      *testing.T
	conn   net.Conn
	heard  []frame // messages that the gateway got
	asked  int     // how often the gateway was asked for its state
	out    strings.Builder
	notes  strings.Builder // text that is printed beside the output
	ended  bool
	err    error // the result of chatLines
	cancel context.CancelFunc
}

// atDesk runs chatLines with an input, or for one message if input is nil. It runs test in a
// synctest bubble, in which all goroutines must end.
func atDesk(t *testing.T, input io.Reader, test func(d *chatFixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &chatFixture{t: t}
		s := newPipe(input, &d.out)
		if input == nil {
			s = once(d, "/a\nb")
		}
		var here net.Conn
		here, d.conn = net.Pipe()
		var ctx context.Context
		ctx, d.cancel = context.WithCancel(t.Context())
		go func() {
			d.err = chatLines(ctx, here, s)
			d.ended = true
		}()
		go func() {
			for lines := newLines(d.conn); lines.Scan(); {
				var f frame
				if err := json.Unmarshal(lines.Bytes(), &f); err != nil {
					t.Error(err)
				}
				if f.Request == "" {
					d.heard = append(d.heard, f)
				} else {
					d.asked++
				}
			}
			d.conn.Close()
		}()
		t.Cleanup(d.cancel)
		synctest.Wait()
		test(d)
	})
}

// writes makes the gateway send frames.
func (d *chatFixture) writes(frames ...frame) {
	d.t.Helper()
	for _, f := range frames {
		if err := write(d.conn, f); err != nil {
			d.t.Fatal(err)
		}
	}
	synctest.Wait()
}

// said returns the texts that the gateway got, separated by "|".
func (d *chatFixture) said() string {
	synctest.Wait()
	var texts []string
	for _, f := range d.heard {
		texts = append(texts, f.Text)
	}
	return strings.Join(texts, "|")
}

func (d *chatFixture) wantSaid(want string) {
	d.t.Helper()
	if got := d.said(); got != want {
		d.t.Errorf("the gateway heard %q, want %q", got, want)
	}
}

// takes makes the gateway acknowledge all messages that it got.
func (d *chatFixture) takes() {
	d.t.Helper()
	for _, f := range d.heard {
		d.writes(frame{ID: f.ID, Stored: true})
	}
}

// answers makes the gateway acknowledge all messages that it got, and answer them.
func (d *chatFixture) answers(id, text string) {
	d.t.Helper()
	d.takes()
	d.writes(frame{ID: id, Text: text}, d.done(id))
}

// done returns the frame that ends the message id, which answers all messages that the gateway
// got.
func (d *chatFixture) done(id string) frame {
	f := frame{ID: id, Done: true}
	for _, h := range d.heard {
		f.Answers = append(f.Answers, h.ID)
	}
	return f
}

func (d *chatFixture) wantEnd(want error) {
	d.t.Helper()
	synctest.Wait()
	if !d.ended || !errors.Is(d.err, want) {
		d.t.Errorf("Chat has ended: %v, with %v; want the end with %v", d.ended, d.err, want)
	}
}

func (d *chatFixture) wantGoesOn() {
	d.t.Helper()
	if synctest.Wait(); d.ended {
		d.t.Fatalf("Chat has ended with %v", d.err)
	}
}

// A script's lines are answered one after another. The script ends after the last answer,
// however long that takes. Only complete answers are printed.
func TestScript(t *testing.T) {
	input := "one\n\n  two  \r\nlast without an end"
	atDesk(t, strings.NewReader(input), func(d *chatFixture) {
		d.wantSaid("one")
		d.takes()
		d.writes(frame{ID: "a", Text: "_reads_"})
		time.Sleep(time.Hour)
		d.wantSaid("one")
		d.writes(frame{ID: "a", Text: "first\n\tanswer"}, d.done("a"))
		d.wantSaid("one|two")
		d.answers("b", "second\x1b[2J")
		d.wantSaid("one|two|last without an end")
		d.takes()
		time.Sleep(time.Hour)
		d.wantGoesOn()
		d.writes(frame{ID: "c", Text: "third"})
		d.answers("c", "third.")
		d.wantEnd(nil)
		if got, want := d.out.String(), "first\n    answer\nsecond[2J\nthird.\n"; got != want {
			t.Errorf("printed %q, want %q", got, want)
		}
		ids := map[string]bool{d.heard[0].ID: true, d.heard[1].ID: true, d.heard[2].ID: true}
		if len(ids) != 3 || ids[""] {
			t.Errorf("three messages have ids %v", ids)
		}
	})
}

func TestScriptIsEmpty(t *testing.T) {
	for _, input := range []string{"", "\n", " \n\n"} {
		atDesk(t, strings.NewReader(input), func(d *chatFixture) {
			d.wantEnd(nil)
			d.wantSaid("")
		})
	}
}

// Messages of other screens in the same conversation don't end a script. Neither does the last
// change of an answer that somebody has stopped.
func TestScriptAmongOthers(t *testing.T) {
	atDesk(t, strings.NewReader("one\n"), func(d *chatFixture) {
		d.takes()
		d.writes(frame{ID: "x", Text: "other", Said: true}, frame{ID: "unknown", Done: true})
		d.writes(frame{ID: "a", Text: "half\n\n_reads_"})
		d.wantGoesOn()
		d.writes(frame{ID: "b", Text: "Stopped."}, d.done("b"))
		d.wantEnd(nil)
		if got := d.out.String(); got != "Stopped.\n" {
			t.Errorf("printed %q", got)
		}
	})
	atDesk(t, strings.NewReader("one\ntwo\n"), func(d *chatFixture) {
		d.takes()
		d.writes(frame{ID: "a", Text: "half\n\n_reads_"}, frame{ID: "b", Text: "Stopped."},
			d.done("b"), frame{ID: "a", Text: "half"}, frame{ID: "a", Done: true})
		d.wantGoesOn()
		d.answers("c", "second")
		d.wantEnd(nil)
		if got := d.out.String(); got != "Stopped.\nhalf\nsecond\n" {
			t.Errorf("printed %q", got)
		}
	})
}

func TestScriptLineTooLong(t *testing.T) {
	longest := strings.Repeat("<", maxText) // JSON encodes it with six times as many bytes
	atDesk(t, strings.NewReader(longest+"\n"+longest+"x\n"), func(d *chatFixture) {
		d.wantSaid(longest)
		d.answers("a", "ok")
		if synctest.Wait(); !d.ended || d.err == nil || !strings.Contains(d.err.Error(), "too long") {
			t.Errorf("Chat = %v", d.err)
		}
		d.wantSaid(longest)
	})
}

// Text in another encoding counts as long as the gateway gets it.
func TestScriptInOtherEncoding(t *testing.T) {
	const word = "caf\xe9 " // in Latin-1
	atDesk(t, strings.NewReader(word+"\n"+strings.Repeat(word, maxText/6)+"\n"),
		func(d *chatFixture) {
			d.wantSaid("caf\ufffd")
			d.answers("a", "ok")
			if synctest.Wait(); !d.ended || d.err == nil || !strings.Contains(d.err.Error(), "too long") {
				t.Errorf("Chat = %v", d.err)
			}
			d.wantSaid("caf\ufffd")
		})
}

// If the connection is lost, the person is told so, and also that a message may not have been
// received.
func TestConnectionLost(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(d *chatFixture)
		want bool // whether the last message may be lost
	}{
		{"before it was taken", func(d *chatFixture) {}, true},
		{"after it was taken", func(d *chatFixture) { d.takes() }, false},
		{"garbage", func(d *chatFixture) {
			d.takes()
			if _, err := io.WriteString(d.conn, "garbage\n"); err != nil {
				d.t.Error(err)
			}
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			atDesk(t, strings.NewReader("one\n"), func(d *chatFixture) {
				d.wantSaid("one")
				tt.do(d)
				d.conn.Close()
				d.wantEnd(ErrLost)
				if got := strings.Contains(d.err.Error(), "may not have received"); got != tt.want {
					t.Errorf("Chat = %v", d.err)
				}
			})
		})
	}
}

// A connection is given up if the gateway reads nothing.
func TestConnectionHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		err := chatLines(t.Context(), here, newPipe(strings.NewReader("one\n"), io.Discard))
		if !errors.Is(err, ErrLost) {
			t.Errorf("Chat = %v, want %v", err, ErrLost)
		}
	})
}

// The end of the context is not an error.
func TestChatCancelled(t *testing.T) {
	atDesk(t, strings.NewReader("one\n"), func(d *chatFixture) {
		d.cancel()
		d.wantEnd(nil)
	})
}

// The context ends, and the gateway closes the connection because of the same context.
func TestChatCancelledAtBothEnds(t *testing.T) {
	for range 20 { // the screen may see either end first
		synctest.Test(t, func(t *testing.T) {
			here, there := net.Pipe()
			printed, out := io.Pipe()
			input, keys := io.Pipe()
			defer keys.Close()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- chatLines(ctx, here, newPipe(input, out)) }()
			for _, f := range []frame{{ID: "a", Text: "x"}, {ID: "a", Done: true}} {
				if err := write(there, f); err != nil {
					t.Error(err)
				}
			}
			synctest.Wait() // now Chat prints
			there.Close()
			synctest.Wait()
			cancel()
			if _, err := io.ReadAtLeast(printed, make([]byte, 2), 2); err != nil {
				t.Error(err)
			}
			if err := <-ended; err != nil {
				t.Errorf("Chat = %v", err)
			}
		})
	}
}

// once returns a screen for one message, without an input.
func once(d *chatFixture, text string) *Screen {
	s := newPipe(strings.NewReader(""), &d.out)
	s.once, s.notes, s.opts.Message = true, &d.notes, text
	return s
}

// The answer to the one message goes to standard output. Messages that waited for a screen are
// printed elsewhere. A message of several lines is not a command.
func TestOnce(t *testing.T) {
	atDesk(t, nil, func(d *chatFixture) {
		d.wantSaid("/a\nb")
		if !d.heard[0].Literal {
			t.Error("a message of several lines may be a command")
		}
		d.writes(frame{ID: "x", Text: "a reminder"}, frame{ID: "x", Done: true})
		d.wantGoesOn()
		d.takes()
		d.writes(frame{Request: wantState, State: &State{}}) // the message was not a question
		d.wantGoesOn()
		d.writes(frame{ID: "y", Text: "part"}, frame{ID: "z", Text: "rest"})
		end := d.done("z")
		end.Parts = []string{"y"}
		d.writes(end)
		d.wantEnd(nil)
		if out, notes := d.out.String(), d.notes.String(); out != "part\nrest\n" ||
			notes != "a reminder\n" || d.asked != 1 {
			t.Errorf("printed %q, and beside it %q; asked %d times", out, notes, d.asked)
		}
	})
}

// A question of the agent does not count as an answer.
func TestOnceUnanswered(t *testing.T) {
	atDesk(t, nil, func(d *chatFixture) {
		d.takes()
		d.writes(frame{ID: "x", Text: "which?"}, frame{ID: "x", Done: true},
			frame{Request: wantState, State: &State{Asks: true}})
		d.wantEnd(ErrAsks)
		if out, notes := d.out.String(), d.notes.String(); out != "" || notes != "which?\n" {
			t.Errorf("printed %q, and beside it %q", out, notes)
		}
	})
	// A reminder that comes before the question does not end the chat before the question is there.
	atDesk(t, nil, func(d *chatFixture) {
		d.takes()
		d.writes(frame{ID: "x", Text: "a reminder"}, frame{ID: "x", Done: true},
			frame{Request: wantState, State: &State{WillAsk: true}})
		d.wantGoesOn()
		time.Sleep(time.Second)
		d.writes(frame{ID: "y", Text: "which?"}, frame{Request: wantState, State: &State{Asks: true}})
		d.wantEnd(ErrAsks)
		if notes := d.notes.String(); notes != "a reminder\nwhich?\n" || d.asked != 2 {
			t.Errorf("printed %q; asked %d times", notes, d.asked)
		}
	})
	atDesk(t, nil, func(d *chatFixture) {
		d.takes()
		d.cancel()
		d.wantEnd(errUnanswered)
	})
}

// In a script, a question counts as an answer, and the next line answers the question.
func TestScriptIsAsked(t *testing.T) {
	atDesk(t, strings.NewReader("one\ntwo\n"), func(d *chatFixture) {
		d.takes()
		d.writes(frame{ID: "x", Text: "which?", Buttons: []screen.Button{{Label: "A", Text: "/a"}}},
			frame{ID: "x", Done: true})
		d.wantSaid("one")
		d.writes(frame{Request: wantState, State: &State{Asks: true}})
		d.wantSaid("one|two")
		d.answers("b", "ok")
		d.wantEnd(nil)
		if got := d.out.String(); got != "which?\n\n- A: send `/a`\nok\n" {
			t.Errorf("printed %q", got)
		}
	})
}
