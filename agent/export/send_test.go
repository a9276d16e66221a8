package export_test

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gateway/agent"
	"gateway/agent/background"
	"gateway/agent/export"
	"gateway/bus"
	"gateway/channels/gate"
	"gateway/memory"
	"gateway/memory/version"
	"gateway/session"
	"gateway/store"
)

// noPeople knows no person.
type noPeople struct{ background.People }

func (noPeople) Known(store.Queryer, int64) (bool, error) { return false, nil }

// A lastFile keeps the last file that was put on it.
type lastFile struct{ bytes.Buffer }

func (s *lastFile) Put(_ bus.Address, name string, r io.Reader) (bus.Attachment, error) {
	s.Reset()
	_, err := s.ReadFrom(r)
	return bus.Attachment{Name: name}, err
}

// A person whom the configuration admits has no number and no conversation before the first turn.
// The archive contains the person's commands, because these are stored.
func TestSendCommandsOnly(t *testing.T) {
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "gateway.db"),
		append(agent.Migrations(), bus.Migration, session.Migration, gate.Migration,
			memory.Migration, version.Migration), nil)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, end := range []func() error{folder.Close, db.Close} {
			if err := end(); err != nil {
				t.Error(err)
			}
		}
	})
	chat := bus.Address{Account: "telegram", Chat: "7"}
	err = db.Tx(t.Context(), func(tx *store.Tx) error {
		_, err := bus.NewInbox().Put(tx, bus.InboundMessage{ID: "1", From: chat, Text: "/export",
			Sender: bus.Sender{ID: "7"}}, time.Now())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var files lastFile
	s := &export.Sender{Files: &files, MaxFile: 1 << 20, Exporter: &export.Exporter{
		DB: db, People: noPeople{}, Memory: folder, Media: folder,
		Secrets: func() []string { return nil }, Zone: time.UTC, Now: time.Now}}
	o, err := s.Do(t.Context(), &background.Task{Notice: &bus.OutboundMessage{To: chat},
		Work: background.Work{Kind: background.Export, Scope: memory.OfChat(chat)}})
	if err != nil || o.Send == nil || len(o.Send.Attachments) != 1 {
		t.Fatalf("Do = %+v, %v; want an archive", o, err)
	}
	archive, err := zip.NewReader(bytes.NewReader(files.Bytes()), int64(files.Len()))
	if err != nil {
		t.Fatal(err)
	}
	f, err := archive.Open("data/inbox.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if text, err := io.ReadAll(f); err != nil || !strings.Contains(string(text), "/export") {
		t.Errorf("data/inbox.jsonl has %q, %v", text, err)
	}
}

// A panic while an export is written reaches the caller, who expects it. On another goroutine it
// would end the process. The archive that was begun does not count as complete.
func TestSenderPanics(t *testing.T) {
	ended := make(storeEnds, 1)
	s := &export.Sender{Files: ended, MaxFile: 1 << 20, Exporter: &export.Exporter{
		Secrets: func() []string { panic("oops") }, Now: time.Now}}
	func() {
		defer func() {
			if p := recover(); p != "oops" {
				t.Errorf("Do has panicked with %v, want oops", p)
			}
		}()
		_, err := s.Do(t.Context(), &background.Task{Notice: &bus.OutboundMessage{}})
		t.Errorf("Do returned %v", err)
	}()
	if err := <-ended; err == nil {
		t.Error("the archive counts as complete")
	}
}

// storeEnds is an [export.Media] that gets the error with which the file has ended.
type storeEnds chan error

func (s storeEnds) Put(_ bus.Address, _ string, r io.Reader) (bus.Attachment, error) {
	_, err := io.Copy(io.Discard, r)
	s <- err
	return bus.Attachment{}, err
}
