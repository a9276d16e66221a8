package bus

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gateway/store"
)

// A sentFixture has an outbox and the log of sent messages beside it.
type sentFixture struct {
	*outboxFixture
	path string
	log  *SentLog
}

func newSentFixture(t *testing.T) *sentFixture {
	f := &sentFixture{outboxFixture: newOutboxFixture(t), path: filepath.Join(t.TempDir(), "sent")}
	f.reopen(0)
	return f
}

// reopen opens the log as the next process does.
func (f *sentFixture) reopen(want int) {
	f.t.Helper()
	log, n, err := OpenSentLog(f.t.Context(), f.path, f.db, f.now)
	f.must(err)
	f.t.Cleanup(func() { _ = log.Close() }) // what matters has been read or written
	if f.log = log; n != want {
		f.t.Errorf("%d messages recovered, want %d", n, want)
	}
}

// begin marks all open deliveries as being sent and returns them.
func (f *sentFixture) begin() []Delivery {
	f.t.Helper()
	list := f.open(0)
	for i := range list {
		list[i].State = Sending
		f.save(&list[i])
	}
	return list
}

func (f *sentFixture) record(d *Delivery, id string) (done func()) {
	f.t.Helper()
	done, err := f.log.Record(d, id)
	f.must(err)
	return done
}

// After a kill the outbox gets the ids that only the log has.
func TestSentLog(t *testing.T) {
	f := newSentFixture(t)
	f.put("sent", "not sent", "noted", "dropped", "of another database")
	list := f.begin()
	list[0].Crashes, list[0].Attempts = 1, 2
	f.save(&list[0])
	for _, i := range []int{0, 2, 3} {
		f.record(&list[i], fmt.Sprint("id ", i))
	}
	other := list[4]
	other.key = NewKey()
	f.record(&other, "id 4")
	list[2].IDs, list[2].State = []string{"id 2"}, Sent
	f.save(&list[2])
	list[3].State = Dropped
	f.save(&list[3])

	f.reopen(1)
	want := []string{"sent waiting", "not sent sending", "of another database sending", "noted sent",
		"dropped dropped"}
	got := f.states()
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("the messages are %q, want %q", got, want)
	}
	d := f.open(0)[0]
	if !slices.Equal(d.IDs, []string{"id 0"}) || d.Crashes != 0 || d.Attempts != 0 {
		t.Errorf("the message has the ids %q, %d crashes, %d attempts; want its id only",
			d.IDs, d.Crashes, d.Attempts)
	}
	f.reopen(0) // the log is empty
}

// The parts of a message may be in any lines of the log.
func TestSentLogParts(t *testing.T) {
	f := newSentFixture(t)
	f.put("one", "long")
	list := f.begin()
	done := f.record(&list[0], "other")
	long := list[1]
	long.Parts, long.IDs = []string{"a", "b", "c"}, []string{"first"}
	f.save(&long)
	f.record(&long, "second")
	done()
	long.IDs = append(long.IDs, "second")
	f.record(&long, "third") // in the line of the first message, before that of the second part
	f.reopen(2)
	if d := f.open(list[0].ID)[0]; !slices.Equal(d.IDs, []string{"first", "second", "third"}) {
		t.Errorf("the message has the ids %q, want three", d.IDs)
	}
}

// The log has a maximum size, and uses lines again.
func TestSentLogIsBounded(t *testing.T) {
	f := newSentFixture(t)
	f.put("hello")
	d := &f.begin()[0]
	var done []func()
	for range sentLines {
		done = append(done, f.record(d, "1"))
	}
	if _, err := f.log.Record(d, "1"); err == nil {
		t.Error("a full log accepts an entry")
	}
	done[7]()
	f.record(d, "1")
	if _, err := f.log.Record(d, "1"); err == nil {
		t.Error("a full log accepts an entry")
	}
	info, err := os.Stat(f.path)
	if err != nil || info.Size() != sentLines*sentLine {
		t.Errorf("the log is %v, %v; want %d bytes", info, err, sentLines*sentLine)
	}
	if _, err := f.log.Record(d, strings.Repeat("x", sentLine)); err == nil {
		t.Error("the log accepts an entry that is longer than a line")
	}
	f.reopen(1)
}

// A damaged line does not hide the others, nor a row that can't be read.
func TestSentLogDamaged(t *testing.T) {
	f := newSentFixture(t)
	f.put("one", "two", "three")
	list := f.begin()
	for i := range list {
		f.record(&list[i], "id")
	}
	text, err := os.ReadFile(f.path)
	f.must(err)
	copy(text[sentLine:], make([]byte, 100))
	f.must(os.WriteFile(f.path, append(text, make([]byte, 4*sentLine+7)...), 0o600))
	f.tx(func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE outbox SET body = '{' WHERE id = $1", list[0].ID)
		return err
	})
	f.reopen(1)
}

// A log that this user can't open is replaced. Root creates such a log if it runs the gateway of
// another user. (If root runs this test, it can open any file.)
func TestSentLogOfOther(t *testing.T) {
	f := newSentFixture(t)
	f.must(os.Chmod(f.path, 0o400))
	f.reopen(0)
	f.put("hello")
	f.record(&f.begin()[0], "id")
	f.reopen(1)
}
