//go:build unix

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"gateway/agent/llm/openai/openaitest"
	"gateway/store"
)

const (
	reloaded    = "configuration reloaded"
	unchanged   = "configuration reloaded, nothing has changed"
	notReloaded = "configuration not reloaded, the earlier settings still apply: correct the file"
	restartKeys = "some saved settings take effect only after a restart"
)

// says waits until the log contains n lines with a message.
func (p *process) says(message string, n int) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	err := p.wait(ctx, func() bool { return p.logged(message) >= n })
	if err != nil {
		p.t.Fatalf("waited for %q in the log: %v\n%s", message, err, p.newest())
	}
}

// shows fails the test if the log does not contain all texts.
func (p *process) shows(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		if log := p.newest(); !strings.Contains(log, text) {
			p.t.Errorf("the log lacks %s:\n%s", text, log)
		}
	}
}

// hangUp sends SIGHUP, so that the gateway reloads the configuration.
func (p *process) hangUp() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		p.t.Fatal(err)
	}
}

// allow returns the lines for a quiet account that only some people may use.
func allow(people string) string {
	return strings.Replace(quiet, `access = "open"`, "access = \"allow\"\nallow = ["+people+"]", 1)
}

// set changes a line in the part that all configurations share.
func (w *world) set(old, new string) {
	w.t.Helper()
	if !strings.Contains(w.config, old) {
		w.t.Fatalf("the configuration has no %q:\n%s", old, w.config)
	}
	w.config = strings.Replace(w.config, old, new, 1)
}

// save writes the configuration by calling write.
func (w *world) save(channel string, write func(path string, text []byte) error) {
	w.t.Helper()
	path := filepath.Join(w.home, "config.toml")
	if err := write(path, []byte(w.config+channel+"\n")); err != nil {
		w.t.Fatal(err)
	}
}

// answers makes a person write in their chat and waits for the newest answer there.
func (w *world) answers(chat int64, text string) {
	w.t.Helper()
	w.telegram.Say(chat, chat, text)
	w.await("an answer to "+text, func() bool { return heard(w, chat, text) })
}

func TestReloadAccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat, channel: allow("7")})
	p := w.start()
	p.ready()
	w.telegram.Say(bobID, bobID, "too early")
	w.answers(annID, "may I")
	w.configure(allow("7, 8"))
	p.says(reloaded, 1)
	w.answers(bobID, "and I")
	w.configure(allow("8"))
	p.says(reloaded, 2)
	w.telegram.Say(annID, annID, "not any more")
	w.answers(bobID, "still I")
	for chat, want := range map[int64]int{annID: 1, bobID: 2} {
		if texts := w.texts(chat); len(texts) != want {
			t.Errorf("chat %d shows %q, want %d answers", chat, texts, want)
		}
	}
	p.shows(`"changed":["channels.telegram.allow"]`)
}

// TestReloadRenamesModel checks that an answer under way costs what its model costs, if a reload
// gives the model another name meanwhile. A model that nobody knows would cost the maximum.
func TestReloadRenamesModel(t *testing.T) {
	t.Parallel()
	asked, renamed := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(renamed) })
	defer goOn()
	w := newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		close(asked)
		<-renamed
		return repeat(r)
	}})
	w.set("[models.fake]", "[models.fake]\nfree = true")
	w.configure(quiet)
	p := w.start()
	p.ready()
	w.telegram.Say(annID, annID, "hello")
	<-asked
	w.config = strings.Replace(strings.Replace(w.config, "[models.fake]", "[models.other]", 1),
		`model = "fake"`, `model = "other"`, 1)
	w.configure(quiet)
	p.says(reloaded, 1)
	goOn()
	w.await("the answer", func() bool { return heard(w, annID, "hello") })
	w.look(func(db *store.DB) {
		if n := w.count(db, "usage WHERE kind = 'day' AND calls = 1 AND cost = 0"); n != 1 {
			t.Error("the answer of a free model has a price")
		}
	})
}

// TestReloadOwners checks that a person who is removed from the owners in the configuration gets
// no more messages for owners, even before the person writes again.
func TestReloadOwners(t *testing.T) {
	t.Parallel()
	const stranger = 9
	knock := strings.Replace(quiet, `access = "open"`, `access = "pairing"`, 1)
	w := newWorld(t, worldOptions{answer: repeat, channel: knock + "\nowners = [7]"})
	p := w.start()
	p.ready()
	w.answers(annID, "I am the owner")
	w.telegram.Say(bobID, bobID, "let me in")
	w.await("a question to the owner", func() bool { return len(w.texts(annID)) == 2 })
	w.configure(knock + "\nowners = []")
	p.says(reloaded, 1)
	w.telegram.Say(stranger, stranger, "and me")
	w.await("a code", func() bool { return len(w.texts(stranger)) == 1 })
	w.answers(annID, "not any more") // comes after all earlier messages to her
	if texts := w.texts(annID); len(texts) != 3 {
		t.Errorf("the former owner reads %q, want two answers and one question", texts)
	}
}

// TestReloadFirstOwner checks that an owner who is named only in the reloaded file can let people
// in as users, although the gateway started without an owner.
func TestReloadFirstOwner(t *testing.T) {
	t.Parallel()
	knock := strings.Replace(quiet, `access = "open"`, `access = "pairing"`, 1)
	w := newWorld(t, worldOptions{answer: repeat, channel: knock})
	p := w.start()
	p.ready()
	w.configure(knock + "\nowners = [7]")
	p.says(reloaded, 1)
	w.answers(annID, "I am the owner")
	w.telegram.Say(bobID, bobID, "let me in")
	w.await("a question to the owner", func() bool { return len(w.texts(annID)) == 2 })
	var code string
	w.look(func(db *store.DB) {
		for range w.query(db, []any{&code}, "SELECT code FROM pairings") {
		}
	})
	w.wantReply(annID, "/pair "+code, "(role: user)")
}

// TestReloadGroupsOfDiscord checks that the gateway reads a channel that a reload has added, also
// after its session on Discord was invalidated.
func TestReloadGroupsOfDiscord(t *testing.T) {
	t.Parallel()
	w, s := withDiscordOnly(t, "streaming = false\n", answerConversations)
	d := s.chatPlatform.(*onDiscord)
	d.AddChannel("10", "40", "weeds")
	p := w.start()
	p.ready()
	s.until("the gateway", s.ready)
	s.ask("hello", "you said hello")
	w.set("groups = [30]", "groups = [30, 40]")
	w.configure("")
	p.says(reloaded, 1)
	d.InvalidSession(false)
	d.Say("40", "8", "<@99> nettles?")
	s.until("an answer", func() bool { return has(d.read("40"), "you said nettles?") })
}

// TestReloadModel checks that a running turn keeps its model and that the next one uses the new
// model.
func TestReloadModel(t *testing.T) {
	t.Parallel()
	h := newHold()
	defer h.release()
	w := newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		if r.Messages[len(r.Messages)-1].Role == "tool" {
			return say("the old model")
		}
		h.wait()
		return openaitest.Reply{ToolCalls: []openaitest.ToolCall{{Name: "time", Arguments: "{}"}}}
	}})
	other := openaitest.Start(openaitest.Say("the new model"))
	defer other.Close()
	p := w.start()
	p.ready()
	w.telegram.Say(annID, annID, "one")
	until(t, "the model to be asked", h.reached)
	w.set(`model = "fake"`, `model = "other"`)
	w.set("[models.fake]", fmt.Sprintf("[models.other]\nmodel = \"x\"\nbase_url = %q\n[models.fake]",
		other.URL))
	w.configure(quiet)
	p.says(reloaded, 1)
	w.telegram.Say(bobID, bobID, "two")
	w.expect(bobID, "the new model")
	h.release()
	w.expect(annID, "the old model")
	p.shows(`"changed":["agent.model","models.other"]`)
}

// TestReloadBroken checks that all mistakes in a file are reported, and that none of its settings
// apply.
func TestReloadBroken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat, channel: allow("7")})
	p := w.start()
	p.ready()
	w.configure(allow("7, 8") + "\nacess = \"open\"\nactivation = \"never\"")
	p.says(notReloaded, 1)
	p.shows("config.toml:", `: channels.telegram.acess: unknown key; did you mean \"access\"?\n`,
		"channels.telegram.activation: want mention or always, not")
	w.telegram.Say(bobID, bobID, "may I")
	w.answers(annID, "it goes on")
	if texts := w.texts(bobID); len(texts) > 0 {
		t.Errorf("a broken file lets a stranger in, who gets %q", texts)
	}
	w.configure(allow("7, 8"))
	p.says(reloaded, 1)
	w.answers(bobID, "now I may")
}

func TestReloadNeedsRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	p := w.start()
	p.ready()
	w.set(`model = "fake"`, "model = \"fake\"\nslots = 3\nmax_rounds = 7")
	w.configure(quiet + "\nrich = true")
	p.says(restartKeys, 1)
	p.shows(`"keys":["agent.slots","channels.telegram.rich"]`, `"changed":["agent.max_rounds"]`)
}

// TestReloadLogLevel checks that a new log level applies at once, and that a file with the same
// settings is reported only at the level debug.
func TestReloadLogLevel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	p := w.start()
	p.ready()
	w.set(`format = "json"`, "format = \"json\"\nlevel = \"debug\"")
	w.configure(quiet)
	p.says(reloaded, 1)
	w.configure(quiet + "\n# the same\n")
	p.says(unchanged, 1)
	p.shows(`"level":"DEBUG","msg":"` + unchanged + `"`)
}

// TestReloadHangup checks that SIGHUP reads everything again, including secrets in separate
// files.
func TestReloadHangup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		header := r.Header.Get("Authorization")
		if lastText(r) == "show it" {
			return say(header)
		}
		return say(map[string]string{"Bearer first-key": "first", "Bearer second-key": "second"}[header])
	}})
	key := filepath.Join(w.home, "key")
	writeKey := func(text string) {
		if err := os.WriteFile(key, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writeKey("first-key")
	w.set(`model = "fake-model"`, `model = "fake-model"`+"\nkey = \"file:key\"")
	w.configure(quiet)
	p := w.start()
	p.ready()
	p.hangUp()
	p.says(unchanged, 1)
	p.shows(`"level":"INFO","msg":"` + unchanged + `"`)
	w.telegram.Say(annID, annID, "which")
	w.expect(annID, "first")
	writeKey("second-key")
	p.hangUp()
	p.says(reloaded, 1)
	p.shows(`"changed":["models.fake.key"]`)
	w.telegram.Say(bobID, bobID, "which")
	w.expect(bobID, "second")
	w.telegram.Say(bobID, bobID, "show it")
	p.says("message withheld: it contains a secret of the gateway", 1)
}

// TestReloadWaysOfSaving checks that a change is applied when the file is saved in the ways of
// different editors and deployments.
func TestReloadWaysOfSaving(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat, channel: allow("1")})
	p := w.start()
	p.ready()
	vim := func(path string, text []byte) error {
		if err := os.Rename(path, path+"~"); err != nil {
			return err
		}
		return os.WriteFile(path, text, 0o600)
	}
	atomic := func(path string, text []byte) error {
		if err := os.WriteFile(path+".new", text, 0o600); err != nil {
			return err
		}
		return os.Rename(path+".new", path)
	}
	linked := func(path string, text []byte) error {
		dir, err := os.MkdirTemp(w.home, "..data")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "config.toml"), text, 0o600); err != nil {
			return err
		}
		if err := os.Symlink(filepath.Join(dir, "config.toml"), path+".new"); err != nil {
			return err
		}
		return os.Rename(path+".new", path)
	}
	many := func(path string, text []byte) error {
		for i := range 50 {
			if err := atomic(path, fmt.Appendf(nil, "%s# save %d\n", text, i)); err != nil {
				return err
			}
		}
		return nil
	}
	ways := []func(string, []byte) error{vim, atomic, linked, linked, many}
	for i, way := range ways {
		person := int64(i + 2)
		w.save(allow(fmt.Sprint(person)), way)
		p.says(reloaded, i+1)
		w.answers(person, "hello")
	}
}

// TestReloadAppears checks that a configuration file is applied if it appears while the gateway
// runs with the defaults. If the file is removed later, the gateway reports a mistake and does
// not return to the defaults.
func TestReloadAppears(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat, channel: allow("7")})
	path := filepath.Join(w.home, "config.toml")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	p := w.start("GATEWAY_CHANNELS__TELEGRAM__TOKEN="+testToken, "GATEWAY_EXEC__SANDBOX=off",
		"GATEWAY_CHANNELS__TELEGRAM__API_URL="+w.url)
	p.ready()
	w.configure(allow("7"))
	p.says(reloaded, 1)
	w.answers(annID, "hello")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	p.hangUp()
	p.says(notReloaded, 1)
	p.shows("config.toml is gone; write it again")
	w.answers(annID, "hello again")
}
