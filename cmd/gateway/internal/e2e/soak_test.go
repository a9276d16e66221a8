//go:build unix

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/telegram/telegramtest"
	"gateway/cmd/gateway/internal/ops"
	"gateway/store"
)

const (
	soakDays     = 12                     // simulated days, for the retention
	soakEvery    = 250 * time.Millisecond // time between two ticks, at which some people write
	soakVisitors = 160                    // visitors, each of whom returns often
)

// TestSoak makes people talk to a gateway for some simulated days, and checks that nothing grows
// without limit. Retention times are scaled down to a part of a minute.
//
// After a third of the test, the first data of each kind has been removed: data that is kept for
// two days is removed after a sixth. The values in the last third may be at most a quarter above
// the maximum of the second third, plus a constant. The constants allow for noise: some pages and
// log lines for files, a few connections for goroutines, and the growth of the heap between two
// garbage collections. A leak per message exceeds them: the last third has about 400 messages by
// default, and nearly a million in a test of a day.
//
// The memory of the agent is excluded, because it is kept for ever: the size of its tables is
// subtracted from the size of the database.
func TestSoak(t *testing.T) {
	t.Parallel()
	s := newSoak(t)
	var samples []sample
	begin, lasts := time.Now(), soakTime()
	tick := time.NewTicker(soakEvery)
	defer tick.Stop()
	for n := 0; time.Since(begin) < lasts || len(samples) < leastSamples; n++ {
		s.traffic(n)
		s.settle()
		if n%4 == 0 {
			samples = append(samples, s.measure())
		}
		select {
		case <-tick.C:
		case <-s.p.done:
			t.Fatalf("the gateway has ended\n%s", s.p.newest())
		}
	}
	s.eventually("most of what was said to be removed", func(db *store.DB) bool {
		for _, table := range []string{"inbox", "outbox", "turns"} {
			if s.count(db, table) > s.said/2 {
				return false
			}
		}
		return true
	})
	samples = append(samples, s.measure())
	s.check(samples)
}

// leastSamples is the minimum number of samples on any machine.
const leastSamples = 12

// settle waits until the gateway has answered everything. On a slow machine, a growing backlog
// would look like a leak.
func (s *soak) settle() {
	s.t.Helper()
	s.received()
	s.eventually("answers to all", func(db *store.DB) bool {
		return s.count(db, "inbox WHERE state IN ('waiting', 'taken')") == 0 &&
			s.count(db, "turns WHERE state = 'running'") == 0 &&
			s.count(db, "outbox WHERE state IN ('waiting', 'sending')") == 0
	})
}

// soakTime returns how long people talk.
func soakTime() time.Duration {
	if *long {
		return time.Minute
	}
	return 20 * time.Second
}

// A soak is a gateway with visitors. Each comes, writes, begins a new conversation and leaves.
type soak struct {
	*world
	p    *process
	said int
}

func newSoak(t *testing.T) *soak {
	s := &soak{world: newWorld(t, worldOptions{
		answer: func(r openaitest.Request) openaitest.Reply {
			return say(fmt.Sprint("this is answer ", r.N, strings.Repeat(" and so on", 40)))
		},
		agent: "waiting = 1000\n[memory]\nidle = \"0s\"\ndream_every = \"0s\"\n" +
			"[retention]\nmessages = \"48h\"\ntranscripts = \"48h\"\nusage = \"48h\"\n" +
			"[media]\nretention = \"48h\"",
	})}
	// The log file is rotated often.
	s.config = strings.Replace(s.config, "[log]\n",
		"[log]\nlevel = \"debug\"\nfile = \"log/gateway.log\"\nfile_mb = 1\nfile_keep = 2\n", 1)
	s.configure(quiet)
	scale := int(soakDays * 24 * time.Hour / soakTime())
	s.p = s.start(fmt.Sprintf("GATEWAY_TIME_SCALE=%d", scale), "GATEWAY_HTTP__LISTEN=127.0.0.1:0",
		"GOGC=100") // the default, because the test measures memory
	s.await("the gateway to receive", s.telegram.Polling)
	return s
}

// visit is the number of ticks that a visitor stays. It is also the number of visitors at a time.
const visit = 8

// traffic makes the visitors of a tick write.
func (s *soak) traffic(n int) {
	var list []telegramtest.Message
	for i := range visit {
		age := (n + i) % visit
		user := int64(1 + ((n+i)/visit*visit+i)%soakVisitors)
		m := telegramtest.Message{User: user, Text: fmt.Sprint("how do you do, ", n)}
		switch age {
		case 2:
			m.File = &telegramtest.File{Kind: "document", Name: "note.txt",
				Data: []byte(strings.Repeat("note ", 2000))}
		case visit - 1:
			m.Text = "/new"
		}
		list = append(list, m)
	}
	s.said += len(list)
	s.telegram.Deliver(list...)
}

// A sample has the values measured at one moment, by name.
type sample map[string]float64

// slack has the accepted growth by name.
var slack = map[string]float64{
	"database bytes": 2 << 20, "log of the database bytes": 8 << 20, "media bytes": 1 << 20,
	"log bytes": 1 << 20, "versions bytes": 1 << 20, "rows in": 300, "rows out": 300, "turns": 300,
	"transcript rows": 600, "questions": 10, "usage rows": 400, "chores": 200, "goroutines": 40,
	"memory bytes": 48 << 20, "open files": 40,
}

func (s *soak) measure() sample {
	m := sample{
		"log of the database bytes": s.size("gateway.db-wal"), "media bytes": s.size("media"),
		"log bytes": s.size("log"), "versions bytes": s.size("versions"),
	}
	s.look(func(db *store.DB) {
		for name, table := range map[string]string{"rows in": "inbox", "rows out": "outbox",
			"turns": "turns", "transcript rows": "messages", "questions": "questions",
			"usage rows": "usage", "chores": "chores"} {
			m[name] = float64(s.count(db, table))
		}
		var remembered float64
		for range s.query(db, []any{&remembered}, "SELECT COALESCE(sum(pgsize), 0) FROM dbstat "+
			"WHERE aggregate = TRUE AND (name LIKE 'memory%' OR name LIKE '%autoindex_memory%')") {
		}
		m["database bytes"] = s.size("gateway.db") - remembered
	})
	s.scrape(m)
	return m
}

// size returns the size of a file, or of all files in a folder, in bytes.
func (s *soak) size(name string) (total float64) {
	s.t.Helper()
	err := filepath.WalkDir(filepath.Join(s.home, name),
		func(_ string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil // the file was removed meanwhile, or does not exist yet
			}
			if info, err := d.Info(); err == nil {
				total += float64(info.Size())
			}
			return nil
		})
	if err != nil {
		s.t.Fatal(err)
	}
	return total
}

// scrape adds the gateway's own metrics to a sample.
func (s *soak) scrape(m sample) {
	s.t.Helper()
	e, err := ops.ReadEndpoint(s.home)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.Address+"/metrics", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+e.Token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		known, ok := map[string]string{"go_goroutines": "goroutines",
			"process_resident_memory_bytes": "memory bytes", "process_open_fds": "open files"}[name]
		if !ok {
			continue
		}
		if m[known], err = strconv.ParseFloat(value, 64); err != nil {
			s.t.Fatal(err)
		}
	}
	if m["goroutines"] == 0 || m["memory bytes"] == 0 {
		s.t.Fatalf("the metrics say nothing of goroutines and memory: %v", m)
	}
}

// check compares the samples of the last third with those of the second one.
func (s *soak) check(samples []sample) {
	s.t.Helper()
	third := len(samples) / 3
	most := func(list []sample, name string) float64 {
		return slices.MaxFunc(list, func(a, b sample) int { return int(a[name] - b[name]) })[name]
	}
	for name, more := range slack {
		before, after := most(samples[third:2*third], name), most(samples[2*third:], name)
		s.t.Logf("%-27s %12.0f then %12.0f", name, before, after)
		if after > before*1.25+more {
			s.t.Errorf("%s: %.0f in the last third, %.0f in the one before", name, after, before)
		}
	}
	last := samples[len(samples)-1]
	// Each message adds a row. If more than half of the rows are left, they were not removed.
	for _, name := range []string{"rows in", "rows out", "turns"} {
		if last[name] > float64(s.said)/2 {
			s.t.Errorf("%s: %.0f are left of %d messages", name, last[name], s.said)
		}
	}
	// The last sample can come right after the removal of departed visitors' files, so any sample
	// counts.
	if files := most(samples, "media bytes"); files == 0 || last["log bytes"] == 0 {
		s.t.Errorf("there are no files: %v", last)
	}
	s.t.Logf("%d messages, %d samples", s.said, len(samples))
}
