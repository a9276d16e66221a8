//go:build unix

package e2e

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm/openai/openaitest"
)

// repeatWords returns a model that answers with the last message and with the words of the list
// that the prompt contains.
func repeatWords(words ...string) openaitest.Answer {
	return func(r openaitest.Request) openaitest.Reply {
		var known []string
		for _, m := range r.Messages {
			for _, w := range words {
				if strings.Contains(m.Content, w) && !slices.Contains(known, w) {
					known = append(known, w)
				}
			}
		}
		slices.Sort(known)
		last := r.Messages[len(r.Messages)-1].Content
		return openaitest.Reply{Text: []string{fmt.Sprintf("I know %q. %s", known, last)}}
	}
}

// TestImportedHomeIsUsed imports a nanobot home into a gateway that was used before, and starts
// it again. Only the owner's conversations use the memory, the conversation continues, and the
// job runs once.
func TestImportedHomeIsUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeatWords("Bello", "Coco", "Rome")})
	w.configure(quiet + "\nowners = [7]")
	p := w.start()
	p.ready()
	w.telegram.Say(7, 7, "hello")
	w.telegram.Say(8, 8, "hello")
	w.await("the first answers", func() bool { return len(w.texts(7)) > 0 && len(w.texts(8)) > 0 })
	if got := strings.Join(w.texts(7), "\n"); !strings.Contains(got, "I know []") {
		t.Fatalf("the answer before is %s", got)
	}
	p.kill()

	bot := t.TempDir()
	for name, text := range map[string]string{
		"config.json":                `{"channels":{}}`,
		"workspace/memory/MEMORY.md": "The dog is called Bello.",
		"workspace/memory/history.jsonl": `{"cursor":1,"timestamp":"2026-11-20 09:00",` +
			`"content":"Anna was in Rome."}`,
		"workspace/sessions/telegram_55.jsonl": `{"role":"user",` +
			`"content":"The parrot is called Coco."}`,
	} {
		writeFile(t, filepath.Join(bot, filepath.FromSlash(name)), []byte(text+"\n"))
	}
	// On a slow machine, the job's time may have passed before the import, which then leaves the
	// job out.
	for in := 5 * time.Second; ; in *= 2 {
		writeFile(t, filepath.Join(bot, "workspace", "cron", "jobs.json"), fmt.Appendf(nil,
			`{"jobs":[{"name":"ficus","schedule":{"kind":"at","atMs":%d},
			"payload":{"message":"Water the ficus","channel":"telegram","to":"7"}}]}`,
			time.Now().Add(in).UnixMilli()))
		out, err := w.gateway("import", "nanobot", bot)
		if err != nil || strings.Contains(out, "failed") {
			t.Fatalf("import: %v\n%s", err, out)
		}
		if !strings.Contains(out, "its time was") {
			break
		}
	}

	p = w.start()
	p.ready()
	w.telegram.Say(7, 7, "what do you know, owner?")
	w.telegram.Say(8, 8, "what do you know, stranger?")
	w.telegram.Say(55, 55, "what do you know, friend?")
	knows := func(chat int64, words, about string) func() bool {
		return func() bool {
			return slices.ContainsFunc(w.texts(chat), func(s string) bool {
				return strings.Contains(s, "I know "+words) && strings.Contains(s, about)
			})
		}
	}
	w.await("the owner's answer", knows(7, `["Bello" "Rome"]`, "owner?"))
	w.await("the stranger's answer", knows(8, `[]`, "stranger?"))
	w.await("the friend's answer", knows(55, `["Coco"]`, "friend?"))
	w.await("the job", knows(7, `["Bello" "Rome"]`, "Water the ficus"))

	if out, err := w.gateway("import", "nanobot", bot); err == nil ||
		!strings.Contains(out, "a gateway is running in") {
		t.Errorf("importing beside a gateway: %v\n%s", err, out)
	}
	for _, dir := range []string{bot + "s", filepath.Join(bot, "config.json")} {
		if out, err := w.gateway("import", "nanobot", dir); err == nil ||
			!strings.Contains(out, "there is no folder "+dir+": give the home of nanobot") {
			t.Errorf("importing %s: %v\n%s", dir, err, out)
		}
	}
}

// TestImportedOpenClawIsUsed imports an OpenClaw home. It checks that the conversations in its
// files and in its database continue, and that a stranger learns nothing of them.
func TestImportedOpenClawIsUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeatWords("Bello", "Coco")})
	w.configure(quiet + "\nowners = [7]")
	p := w.start()
	p.ready()
	w.reply(7, "hello")
	p.stop()
	claw := t.TempDir()
	for name, text := range map[string]string{
		"workspace/MEMORY.md":                "The dog is called Bello.",
		"agents/main/sessions/sessions.json": `{"agent:main:telegram:direct:55":{"sessionId":"s"}}`,
		"agents/main/sessions/s.jsonl": `{"type":"session","version":3,"id":"s"}
{"type":"message","id":"1","parentId":null,"timestamp":"2026-05-01T08:00:00Z",` +
			`"message":{"role":"user","content":"The parrot is called Coco."}}`,
	} {
		writeFile(t, filepath.Join(claw, filepath.FromSlash(name)), []byte(text+"\n"))
	}
	base := filepath.Join(claw, "agents", "main", "agent", "openclaw-agent.sqlite")
	writeFile(t, base, nil) // creates the folder, too
	db, err := sql.Open("sqlite", base)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), `PRAGMA journal_mode = WAL;
CREATE TABLE session_nodes (session_key TEXT PRIMARY KEY, current_session_id TEXT NOT NULL,
	entry_json TEXT NOT NULL, updated_at INTEGER NOT NULL) STRICT;
CREATE TABLE transcript_events (session_id TEXT NOT NULL, seq INTEGER NOT NULL,
	event_json TEXT NOT NULL, created_at INTEGER NOT NULL, PRIMARY KEY (session_id, seq)) STRICT;
INSERT INTO session_nodes VALUES ('agent:main:telegram:direct:56', 'd', '{}', 1);
INSERT INTO transcript_events VALUES ('d', 0, '{"type":"session","id":"d"}', 1),
	('d', 1, '{"type":"message","id":"1","parentId":null,"message":{"role":"user",
		"content":"Coco is green."}}', 1)`)
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if out, err := w.gateway("import", "openclaw", claw); err != nil {
		t.Fatalf("import: %v\n%s", err, out)
	}
	w.start().ready()
	w.wantReply(7, "what do you know, owner?", `I know ["Bello"]`)
	w.wantReply(55, "what do you know, friend?", `I know ["Coco"]`)
	w.wantReply(56, "what do you know, newer friend?", `I know ["Coco"]`)
	w.wantReply(8, "what do you know, stranger?", "I know []")
}
