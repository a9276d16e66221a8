//go:build unix

package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"gateway/bus"
	"gateway/cmd/gateway/internal/app"
	"gateway/store"
)

// TestKillPower is like TestKill, but with a power loss at each kill: the database loses all data
// that was not synced. Each message is answered in order and once. Only messages sent in the last
// 50 ms may come twice.
func TestKillPower(t *testing.T) {
	t.Parallel()
	t.Run("random", func(t *testing.T) {
		t.Parallel()
		tr := newTrial(t, 200)
		lost := 0
		// The loop has more rounds if no power loss has removed something yet.
		for n := 0; n < often(16) || lost == 0 && n < 200; n++ {
			tr.say(few(10) + tr.rand.IntN(few(20)))
			p := tr.start("GATEWAY_SYNCED=1")
			p.ready()
			tr.say(few(10) + tr.rand.IntN(few(20)))
			lost += tr.powerLossAfter(p, time.Duration(tr.rand.IntN(few(350)))*time.Millisecond)
		}
		tr.settle()
		if t.Logf("%d frames of the log were lost", lost); lost == 0 {
			t.Error("no power loss has taken anything")
		}
	})
	for _, point := range []string{"begun", "intended", "stepped", "finished", "sending", "sent"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			tr := newTrial(t, 25)
			tr.loses = true
			for _, n := range []int{1, 6, 11} {
				tr.relax()
				tr.endAt(point, n)
			}
			tr.settle()
		})
	}
}

// TestPowerLossAfterCrashes cuts the power right after a platform has accepted an answer. Two
// processes crashed before while they sent this answer. The gateway must not give up the answer,
// because it has arrived, and must not tell anybody that it gave it up.
func TestPowerLossAfterCrashes(t *testing.T) {
	t.Parallel()
	tr := newTrial(t, 1)
	for range 2 {
		tr.endAt("sending", 1)
	}
	tr.loses = true
	tr.endAt("delivered", 1)
	tr.settle()
}

// TestPowerLossAfterCall cuts the power right after a tool has returned. The database then has the
// call, but not always the result. The tool is not called again.
func TestPowerLossAfterCall(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	book := func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		calls.Add(1)
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "booked"}}}, nil
	}
	server := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server {
		return (*askingServer)(nil).server(book)
	}, &sdk.StreamableHTTPOptions{Stateless: true}))
	defer server.Close()
	w := newWorld(t, worldOptions{answer: followOrders})
	w.configure(quiet + "\nowners = [7]\n[mcp.nursery]\nurl = \"" + server.URL + "\"\n")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p := w.start("GATEWAY_FAULT=stepped:2", "GATEWAY_SYNCED=1") // the first step is the call
	p.ready()
	if err := p.wait(ctx, func() bool { return p.logged("mcp server connected") > 0 }); err != nil {
		t.Fatalf("waited for the server: %v\n%s", err, p.newest())
	}
	w.telegram.Say(7, 7, "DO mcp_nursery_book {}")
	until(t, "the end of the gateway", p.done)
	cutLog(t, filepath.Join(w.home, "gateway.db"))
	p = w.start()
	p.ready()
	w.await("the answer", func() bool { return has(w.texts(7), "the tools said") })
	p.kill()
	if n := calls.Load(); n != 1 {
		t.Errorf("the tool was called %d times, want once, and the chat shows %q", n, w.texts(7))
	}
}

// powerLossAfter kills p after a duration and removes unsynced data from its database. It returns
// the number of lost frames of the write-ahead log.
func (tr *trial) powerLossAfter(p *process, d time.Duration) (lost int) {
	tr.t.Helper()
	tr.rest(p)
	tr.pause(p, d)
	p.kill()
	tr.kills++
	tr.platform.calm()
	lost = tr.losePower()
	tr.autopsy()
	return lost
}

// losePower removes unsynced data from the files of a dead process: the newest part of the database
// and, in one of two cases, the log of sent messages, which is never synced. A message that was
// sent, or was being sent again, may have lost its mark for that. losePower records such messages,
// because they may come again.
func (tr *trial) losePower() (lost int) {
	tr.t.Helper()
	before := tr.sendings(copyDatabase(tr.t, tr.home))
	lost = cutLog(tr.t, filepath.Join(tr.home, "gateway.db"))
	if tr.rand.IntN(2) == 0 {
		if err := os.Remove(filepath.Join(tr.home, "gateway.db-sent")); err != nil {
			tr.t.Fatal(err)
		}
	}
	after := tr.sendings(copyDatabase(tr.t, tr.home))
	for id, d := range before {
		switch now := after[id]; {
		case len(now.ids) < len(d.ids), d.state != bus.Waiting && now.state == bus.Waiting:
			tr.caught[d.text]++
			tr.unnoted[d.text]++
		case now.uncertain < d.uncertain: // still being sent; autopsy counts it in caught
			tr.unnoted[d.text]++
		}
	}
	return lost
}

// A sending is the state of a delivery in the database.
type sending struct {
	text  string
	state bus.DeliveryState
	ids   string

	uncertain int
}

// sendings returns the deliveries in the database of a home, by id.
func (tr *trial) sendings(home string) map[int64]sending {
	list := make(map[int64]sending)
	db, err := store.Open(tr.t.Context(), filepath.Join(home, "gateway.db"), app.Migrations(),
		&store.Options{Shared: true})
	if err != nil {
		tr.t.Fatal(err)
	}
	defer db.Close()
	var id int64
	var body []byte
	var s sending
	for range tr.query(db, []any{&id, &body, &s.state, &s.ids, &s.uncertain},
		"SELECT id, body, state, ids, uncertain FROM outbox") {
		s.text = outbound(tr.t, body).Text
		list[id] = s
	}
	return list
}

// copyDatabase copies the database of a home, because opening a database changes its files.
func copyDatabase(t *testing.T, home string) string {
	dir := t.TempDir()
	for _, name := range []string{"gateway.db", "gateway.db-wal"} {
		data, err := os.ReadFile(filepath.Join(home, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Layout of a write-ahead log and of its index: see "WAL-mode File Format" of SQLite.
const (
	logHeader     = 32  // bytes; the page size is at 8, the salt at 16
	frameHeader   = 24  // bytes, before each page
	indexTried    = 128 // offset of the number of frames that a checkpoint may have moved
	indexHeadSize = 136
)

// cutLog truncates the write-ahead log of the database at path after the last synced frame. The
// process has recorded that frame. Frames that a checkpoint may have copied to the database stay,
// since SQLite syncs the log before a checkpoint. cutLog returns the number of lost frames.
func cutLog(t *testing.T, path string) (lost int) {
	t.Helper()
	wal, err := os.ReadFile(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	if len(wal) < logHeader {
		return 0
	}
	frame := frameHeader + int(binary.BigEndian.Uint32(wal[8:]))
	salt := binary.BigEndian.Uint64(wal[16:])
	index, err := os.ReadFile(path + "-shm")
	if err != nil || len(index) < indexHeadSize {
		t.Fatalf("index of %d bytes: %v", len(index), err)
	}
	// A visible commit was synced, even if the process died before it recorded that.
	seen := logMark{binary.BigEndian.Uint64(index[32:]), int(binary.NativeEndian.Uint32(index[16:]))}
	synced := readMark(t, path+".synced")
	if begun := readMark(t, path+".syncing"); begun != (logMark{}) && seen != begun {
		synced = seen
	}
	keep := int(binary.NativeEndian.Uint32(index[indexTried:]))
	if synced.salt == salt { // otherwise the log began anew after the last sync
		keep = max(keep, synced.frames)
	}
	end := min(logHeader+keep*frame, len(wal))
	for at := end; at+frame <= len(wal) && bytes.Equal(wal[at+8:at+16], wal[16:24]); at += frame {
		lost++ // a frame of this log; frames of an earlier log have another salt
	}
	if err := os.Truncate(path+"-wal", int64(end)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path + "-shm"); err != nil {
		t.Fatal(err)
	}
	return lost
}

// A logMark is a position in a write-ahead log.
type logMark struct {
	salt   uint64
	frames int
}

// readMark reads the mark that the process has recorded, or zero if there is none.
func readMark(t *testing.T, path string) (m logMark) {
	t.Helper()
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return logMark{}
	}
	if err == nil {
		_, err = fmt.Sscan(string(text), &m.salt, &m.frames)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}
