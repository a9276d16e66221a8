//go:build unix

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gateway/store"
)

// TestKill kills the gateway at random moments and between any two steps of a message, and
// restarts it. It checks that each message is answered, in order and once. Only sends whose
// outcome the dead process could not know may come twice.
func TestKill(t *testing.T) {
	t.Parallel()
	t.Run("random", func(t *testing.T) {
		t.Parallel()
		tr := newTrial(t, 200)
		for range often(32) {
			tr.say(few(10) + tr.rand.IntN(few(20)))
			p := tr.start()
			p.ready()
			tr.say(few(10) + tr.rand.IntN(few(20)))
			tr.killAfter(p, time.Duration(tr.rand.IntN(few(350)))*time.Millisecond)
		}
		tr.settle()
	})
	t.Run("outage", func(t *testing.T) {
		t.Parallel()
		tr := newTrial(t, 60)
		tr.platform.disturb(tr.ledger.hide)
		for range often(18) {
			tr.say(few(20))
			p := tr.start()
			p.ready()
			tr.say(few(10))
			tr.killAfter(p, time.Duration(tr.rand.IntN(few(500)))*time.Millisecond)
		}
		tr.settle()
	})
	t.Run("drain", func(t *testing.T) {
		t.Parallel()
		tr := newTrial(t, 200)
		for range often(12) {
			tr.say(few(20))
			p := tr.start()
			p.ready()
			tr.say(few(10))
			tr.rest(p)
			tr.pause(p, time.Duration(tr.rand.IntN(few(200)))*time.Millisecond)
			tr.stop(p)
			if n := tr.autopsy(); n > 0 {
				t.Errorf("%d sends were under way when the gateway had stopped by itself", n)
			}
		}
		tr.settle()
		if tr.doubled > 0 {
			t.Errorf("%d answers came twice though nothing was killed", tr.doubled)
		}
	})
	t.Run("stream", func(t *testing.T) {
		t.Parallel()
		tr := newTrial(t, 40)
		tr.stream()
		for range often(12) {
			tr.say(few(20))
			p := tr.start()
			p.ready()
			tr.say(few(10))
			tr.killAfter(p, time.Duration(tr.rand.IntN(700))*time.Millisecond)
		}
		tr.settle()
	})
	for _, point := range []string{
		"accepted", "begun", "intended", "stepped", "finished", "sending", "sent", "recorded",
		"delivered",
	} {
		for _, n := range []int{1, 2, few(31)} {
			t.Run(fmt.Sprintf("%s/%d", point, n), func(t *testing.T) {
				t.Parallel()
				atPoint(t, point, n)
			})
		}
	}
}

// TestKillRecorded kills processes that have recorded that Telegram has an answer, before they
// could store that in the database. No answer comes twice.
func TestKillRecorded(t *testing.T) {
	t.Parallel()
	tr := newTrial(t, 1) // with other chats, a kill could also interrupt a call
	for range often(4) {
		tr.relax()
		tr.endAt("recorded", 2)
	}
	tr.settle()
	if tr.doubled > 0 || total(tr.caught) > 0 {
		t.Errorf("%d answers came twice, %d sends count as unfinished; want none",
			tr.doubled, total(tr.caught))
	}
}

// atPoint kills two processes when they reach a fault point for the nth time.
func atPoint(t *testing.T, point string, n int) {
	tr := newTrial(t, 25)
	for range 2 {
		tr.endAt(point, n)
	}
	tr.settle()
	// The kill can interrupt sends of other chats too, but must interrupt the send at the fault
	// point.
	if caught := total(tr.caught); caught < 2 && (point == "sending" || point == "sent") {
		t.Errorf("two kills at %s have caught %d sends", point, caught)
	}
	if point == "sent" && tr.doubled < 2 {
		t.Errorf("%d answers came twice after two kills at %s", tr.doubled, point)
	}
}

// endAt starts a process and makes people write until it reaches a fault point for the nth time
// and dies.
func (tr *trial) endAt(point string, n int) {
	tr.t.Helper()
	p := tr.start(fmt.Sprintf("GATEWAY_FAULT=%s:%d", point, n), "GATEWAY_SYNCED=1")
	p.ready()
	for range 200 { // in pieces, because "accepted" counts batches
		select {
		case <-p.done:
		default:
			answered, _, _ := tr.ledger.state()
			tr.say(1)
			tr.ledger.await(tr.t, answered+1, p.done)
		}
	}
	select {
	case <-p.done:
	default:
		tr.t.Fatalf("the gateway never came to %s:%d", point, n)
	}
	if code := p.exited(patience); code != -1 {
		tr.t.Fatalf("the gateway ended with code %d\n%s", code, p.newest())
	}
	tr.kills++
	if tr.loses {
		tr.losePower()
	}
	tr.autopsy()
}

func total(counts map[string]int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// A trial is a gateway that is killed repeatedly while people talk to it.
type trial struct {
	*world
	t        *testing.T
	ledger   *ledger
	platform killPlatform
	rand     *rand.Rand
	chats    int

	kills   int
	tired   bool           // one more kill could make a turn give up
	caught  map[string]int // how often a dead process left a send of this text unfinished
	loses   bool           // each kill is a power loss, too
	unnoted map[string]int // how often a power loss removed the progress of this text's send
	growing map[string]int // how often a dead process left an answer unfinished, by chat
	doubled int            // number of repeated answers; set by check
	orphans int            // number of previews that no answer has replaced; set by check
}

// newTrial returns a trial on Telegram.
func newTrial(t *testing.T, chats int) *trial {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	l := newLedger()
	tr := &trial{
		t: t, ledger: l, chats: chats,
		caught: make(map[string]int), unnoted: make(map[string]int), growing: make(map[string]int),
		world: newWorld(t, worldOptions{
			answer: l.answer, onSend: l.onSend, agent: "waiting = 1000"}),
		rand: rand.New(rand.NewPCG(seed, 0)),
	}
	tr.platform = killTelegram{tr.world}
	notes := filepath.Join(tr.home, "workspace", "notes.txt")
	if err := os.Mkdir(filepath.Dir(notes), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(notes, []byte("buy milk\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return tr
}

// say makes people write n messages, sometimes several in a row.
func (tr *trial) say(n int) {
	var list []saying
	for len(list) < n {
		chat := int64(1 + tr.rand.IntN(tr.chats))
		for range 1 + tr.rand.IntN(3) {
			list = append(list, saying{chat, tr.ledger.next(chat, tr.rand.IntN(4))})
		}
	}
	tr.platform.say(list)
}

// pause waits for a duration or until p ends.
func (tr *trial) pause(p *process, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.done:
		tr.t.Fatalf("the gateway has ended by itself\n%s", p.newest())
	}
}

// rest lets p answer everything if one more kill could make the gateway give up a turn. This test
// does not check giving up.
func (tr *trial) rest(p *process) {
	tr.t.Helper()
	if tr.tired {
		tr.platform.calm()
		tr.quiet(p)
	}
}

// killAfter kills p after a duration.
func (tr *trial) killAfter(p *process, d time.Duration) {
	tr.t.Helper()
	tr.rest(p)
	tr.pause(p, d)
	p.kill()
	tr.kills++
	tr.platform.calm()
	tr.autopsy()
}

// stop stops p with SIGTERM, as systemd does.
func (tr *trial) stop(p *process) {
	tr.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		tr.t.Fatal(err)
	}
	if code := p.exited(patience); code != 0 {
		tr.t.Fatalf("exit code %d after SIGTERM\n%s", code, p.newest())
	}
}

// autopsy checks what a dead process has left. It counts unfinished sends and answers, looks for
// turns with many interruptions, and returns the number of unfinished sends.
func (tr *trial) autopsy() (sending int) {
	tr.t.Helper()
	tr.look(func(db *store.DB) {
		var body []byte
		var id int64
		recorded := tr.recorded()
		for range tr.query(db, []any{&id, &body}, "SELECT id, body FROM outbox "+
			"WHERE state = 'sending'") {
			sending++
			if !recorded[id] {
				tr.caught[outbound(tr.t, body).Text]++
			}
		}
		var chat string // address without the account
		for range tr.query(db, []any{&chat}, "SELECT chat FROM sessions JOIN turns ON session = key "+
			"WHERE state = 'running' UNION SELECT chat FROM outbox WHERE state = 'waiting'") {
			tr.growing[chat]++
		}
		tr.tired = tr.isTired(db)
	})
	return sending
}

// recorded returns the ids of the deliveries in the log of sent messages. The answers of a trial
// have one part.
func (tr *trial) recorded() map[int64]bool {
	tr.t.Helper()
	ids := make(map[int64]bool)
	text, err := os.ReadFile(filepath.Join(tr.home, "gateway.db-sent"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		tr.t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var entry struct {
			Delivery int64 `json:"delivery"`
		}
		line = bytes.TrimLeft(line, "\x00") // the kill came before a line that precedes this one
		if err := json.Unmarshal(line, &entry); err != nil {
			tr.t.Fatal(err)
		}
		ids[entry.Delivery] = true
	}
	return ids
}

// stream switches on streaming.
func (tr *trial) stream() {
	tr.ledger.slow = true
	tr.configure("streaming = true\n" + streaming)
}

// quiet waits until p has nothing left to do.
func (tr *trial) quiet(p *process) {
	tr.t.Helper()
	tr.ledger.mu.Lock()
	said := tr.said()
	tr.ledger.mu.Unlock()
	tr.look(func(db *store.DB) {
		ctx, cancel := context.WithTimeout(tr.t.Context(), patience)
		defer cancel()
		err := p.wait(ctx, func() bool {
			return tr.count(db, "outbox WHERE state IN ('waiting', 'sending')") == 0 &&
				tr.count(db, "turns WHERE state = 'running'") == 0 &&
				tr.count(db, "inbox WHERE state NOT IN ('waiting', 'taken')") == said
		})
		if err != nil {
			tr.t.Fatalf("never quiet: %v\n%s", err, p.newest())
		}
	})
}

// settle runs a last process until all work is done, stops it, and checks everything.
func (tr *trial) settle() {
	tr.t.Helper()
	tr.platform.calm()
	p := tr.start()
	p.ready()
	tr.quiet(p)
	if !tr.ledger.slow { // with streaming, the ledger hears only the first text of each message
		tr.ledger.await(tr.t, 0, p.done)
		tr.quiet(p) // people may see the last answer before the gateway knows that it is sent
	}
	tr.platform.rest()
	tr.stop(p)
	tr.check()
}

// executions returns how often a chat shows each of the promised answers, and in which order.
func (tr *trial) executions(chat int64, promised []string) (times map[string]int, order []string) {
	times = make(map[string]int)
	for _, text := range tr.platform.texts(chat) {
		if !slices.Contains(promised, text) {
			tr.orphan(chat, text)
			continue
		}
		times[text]++
		if times[text] > 1 && tr.unnoted[text] > 0 {
			continue // after a power loss, the gateway sends it again, in order
		}
		// A repeated answer comes before all later answers.
		if len(order) == 0 || order[len(order)-1] != text {
			order = append(order, text)
		}
	}
	return times, order
}

// orphan records a text that is not a promised answer: a preview that a process sent, but did not
// record before it died. That can happen once for each answer of the chat that a kill has
// interrupted. It never happens on a platform that recognizes repeated sends.
func (tr *trial) orphan(chat int64, text string) {
	tr.orphans++
	at := tr.platform.address(chat).Chat
	tr.growing[at]--
	if tr.growing[at] < 0 || !tr.ledger.slow || tr.platform.remembers() {
		tr.t.Errorf("chat %d shows %q, which is no answer", chat, text)
	}
}

// report logs the results of a trial.
func (tr *trial) report(deliveries int, uncertain int) {
	tr.t.Logf("%d messages, %d answers, %d model calls, %d kills; %d sends caught by a kill, "+
		"%d hidden by the platform; %d uncertain, %d doubled, %d orphaned previews",
		tr.said(), deliveries, tr.ledger.calls, tr.kills, total(tr.caught),
		total(tr.ledger.lost), uncertain, tr.doubled, tr.orphans)
}

// number returns the number of a mark within its chat.
func number(m string) string { return strings.SplitN(m[1:], "r", 2)[0] }
