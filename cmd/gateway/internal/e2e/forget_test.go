//go:build unix

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gateway/channels/discord/discordtest"
	"gateway/channels/telegram/telegramtest"
	"gateway/store"
)

// A guest is a person on a platform who was approved by a pairing code.
type guest struct {
	platform string
	marks    []string // texts by which the test finds data about the guest
	say      func(text string)
	texts    func() []string // what they read from the bot
}

// A guestWorld is a gateway with a guest on each platform.
type guestWorld struct {
	*world
	guests   []guest
	whatsapp *onWhatsApp
}

const zoe = "Zoe Zanzibar"

func newGuestWorld(t *testing.T) *guestWorld { return newGuestWorldOf(t, worldOptions{}, "") }

// newGuestWorldOf is like newGuestWorld, with options and more lines for each account.
func newGuestWorldOf(t *testing.T, o worldOptions, account string) *guestWorld {
	t.Helper()
	w := newWorld(t, o)
	in := &guestWorld{world: w, whatsapp: openWhatsApp(t, w.home)}
	d, tg := openDiscord(t), openTelegram(w.telegram, w.url)
	const user, dm = "481516234200000001", "481516234200000002"
	d.AddUser(discordtest.User{ID: user, Username: "zoe_zanzibar", Name: zoe})
	d.AddDM(user, dm)
	const chat = 481516234233
	tg.AddUser(telegramtest.User{ID: chat, First: zoe})
	p := in.whatsapp.person(zoe)
	in.guests = []guest{
		{"discord", []string{user, dm}, func(s string) { d.Say(dm, user, s) },
			func() []string { return d.read(dm) }},
		{"telegram", []string{fmt.Sprint(chat)}, func(s string) { w.telegram.Say(chat, chat, s) },
			func() []string { return tg.read(chat, 0) }},
		{"whatsapp", []string{p.Phone(), p.LID()},
			func(s string) { _, err := p.Say(t.Context(), s); in.whatsapp.must(err) },
			func() []string { return in.whatsapp.read(p, "") }},
	}
	for i := range in.guests {
		in.guests[i].marks = append(in.guests[i].marks, "Zanzibar", "zanzibar", "timbuktu")
	}
	w.config = w.config[:strings.Index(w.config, "[channels.telegram]")]
	for _, th := range []struct {
		name string
		chatPlatform
	}{{"discord", d}, {"telegram", tg}, {"whatsapp", in.whatsapp}} {
		w.config += "[channels." + th.name + "]\n" + th.config() + account
	}
	w.configure("")
	return in
}

// open starts a gateway and waits until it receives messages from all platforms. On Discord, a
// gateway can't get messages of unknown people that it missed.
func (in *guestWorld) open(env ...string) *process {
	in.t.Helper()
	p := in.start(env...)
	p.receives()
	return p
}

// hear waits until a guest reads a text.
func (in *guestWorld) hear(g guest, text string) {
	in.t.Helper()
	in.eventually(g.platform+" shows "+text, func(*store.DB) bool { return has(g.texts(), text) })
}

// code waits for the nth pairing code of a guest and returns it.
func (in *guestWorld) code(g guest, n int) string {
	in.t.Helper()
	var codes [][]string
	in.eventually("a pairing code on "+g.platform, func(*store.DB) bool {
		codes = regexp.MustCompile(`code is [^A-Z0-9]*([A-Z0-9]{8})`).
			FindAllStringSubmatch(strings.Join(g.texts(), "\n"), -1)
		return len(codes) >= n
	})
	return codes[n-1][1]
}

// welcome approves all guests and makes them write until the gateway stores data about each. Ann
// comes last, because an existing owner is told about each pairing request.
func (in *guestWorld) welcome() {
	in.t.Helper()
	for _, g := range in.guests {
		g.say("hello")
		code := in.code(g, 1)
		if out, err := in.gateway("people", "approve", code); err != nil {
			in.t.Fatalf("approve: %v\n%s", err, out)
		}
		in.hear(g, "let you in")
		g.say("my secret is timbuktu")
		in.hear(g, "my secret is timbuktu")
		for _, mark := range g.marks {
			if len(in.traces(mark)) == 0 {
				in.t.Errorf("there is no trace of %q: it proves nothing", mark)
			}
		}
	}
	in.whatsapp.say("hello")
	in.eventually("an answer to Ann", func(*store.DB) bool { return len(in.whatsapp.direct()) > 0 })
}

// forgets waits until the background work of /forget is done.
func (in *guestWorld) forgets() {
	in.t.Helper()
	in.eventually("all is forgotten", func(db *store.DB) bool {
		return in.count(db, "chores WHERE kind = 'erase'") == 0
	})
}

// traces returns the files of the home, except the configuration, that contain a text.
func (in *guestWorld) traces(text string) (list []string) {
	in.t.Helper()
	err := filepath.WalkDir(in.home, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || e.Name() == "config.toml" {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(text)) || strings.Contains(e.Name(), text) {
			list = append(list, strings.TrimPrefix(path, in.home))
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		in.t.Fatal(err)
	}
	return list
}

// wantNoTraces checks that no file contains data about the guests, except for the files in
// except.
func (in *guestWorld) wantNoTraces(except ...string) {
	in.t.Helper()
	for _, g := range in.guests {
		for _, mark := range g.marks {
			if left := in.traces(mark); len(left) > 0 && !slices.Contains(except, g.platform) {
				in.t.Errorf("%s: traces of %q are left in %q", g.platform, mark, left)
			}
		}
	}
	if len(in.traces(in.whatsapp.ann.LID())) == 0 {
		in.t.Error("Ann is forgotten, too")
	}
}

// wantStrangers checks that the gateway treats the guests as strangers.
func (in *guestWorld) wantStrangers() {
	in.t.Helper()
	for _, g := range in.guests {
		g.say("hello again")
		in.code(g, 2)
	}
}

// TestForgetOnPlatforms checks that a forgotten person leaves no data in any file of the gateway,
// not even their platform id, and even if the work is interrupted. Afterwards the person is a
// stranger who can ask for a pairing code again.
func TestForgetOnPlatforms(t *testing.T) {
	t.Parallel()
	tests := concurrentTests{t: t}
	defer tests.all.Wait()
	for _, tt := range []struct {
		name   string
		fault  string
		killed bool // kill the gateway after the answer
		away   bool // WhatsApp is down after the answer
	}{
		{name: "at once"},
		{name: "killed", killed: true},
		{name: "killed when it was done", fault: "GATEWAY_FAULT=chored:2"},
		{name: "killed between two pieces", fault: "GATEWAY_FAULT=erasing:4"},
		{name: "not connected", away: true},
	} {
		tests.run(tt.name, func(t *testing.T) {
			in := newGuestWorld(t)
			p := in.open()
			in.welcome()
			if tt.fault != "" {
				p.kill()
				p = in.open(tt.fault)
			}
			for _, g := range in.guests {
				g.say("/forget me now")
				if tt.fault == "" {
					in.hear(g, "I have forgotten you")
				}
			}
			switch {
			case tt.killed:
				p.kill()
				p = in.open()
			case tt.fault != "":
				if code := p.exited(patience); code != -1 {
					t.Errorf("exit code %d, want a kill\n%s", code, p.newest())
				}
				p = in.open()
				for _, g := range in.guests {
					in.hear(g, "I have forgotten you")
				}
			}
			if tt.away {
				in.eventually("the answers are noted as sent", func(db *store.DB) bool {
					return in.count(db, "outbox WHERE state IN ('waiting', 'sending')") == 0
				})
				in.whatsapp.SetOutage(true)
			}
			in.forgets()
			in.wantNoTraces()
			if tt.away {
				in.whatsapp.SetOutage(false)
			}
			in.wantStrangers()
			p.kill()
			in.open()
		})
	}
}

// TestForgetByOperator checks that the operator can forget people while a gateway runs or not,
// even those of a removed account. The next gateway completes the work.
func TestForgetByOperator(t *testing.T) {
	t.Parallel()
	in := newGuestWorld(t)
	p := in.open()
	in.welcome()
	forget := func(platform string) {
		t.Helper()
		var person int64
		in.look(func(db *store.DB) {
			for range in.query(db, []any{&person}, "SELECT id FROM people JOIN identities "+
				"ON person = id WHERE account = $1 AND name = $2", platform, zoe) {
			}
		})
		out, err := in.gateway("memory", "forget", fmt.Sprint(person), "--yes")
		if err != nil {
			t.Fatalf("forget %d: %v\n%s", person, err, out)
		}
	}
	forget("discord")
	p.kill()
	forget("telegram")
	forget("whatsapp")
	before, _, _ := strings.Cut(in.config, "[channels.whatsapp]")
	in.config = before
	in.configure("")
	in.start().ready()
	in.forgets()
	in.wantNoTraces()
}

// TestForgottenLog checks that the log in the home has no words of a forgotten person, although a
// tool has failed with an error that quotes them.
func TestForgottenLog(t *testing.T) {
	t.Parallel()
	w := workWorld(t, "", nil)
	w.config = strings.Replace(w.config, "[log]\n", "[log]\nfile = \"gateway.log\"\n", 1)
	w.configure(quiet + "\nowners = [7]")
	w.start()
	if got := result(w.do(`read_file {"path":"timbuktu.txt"}`)); !strings.Contains(got, "timbuktu") {
		t.Fatalf("the tool says %q: it proves nothing", got)
	}
	in := &guestWorld{world: w}
	w.telegram.Say(annID, annID, "/forget me now")
	w.await("the answer", func() bool { return heard(w, annID, "I have forgotten you") })
	in.forgets()
	if left := in.traces("timbuktu"); len(left) > 0 {
		t.Errorf("traces are left in %q", left)
	}
	if len(in.traces("tool failed")) == 0 {
		t.Error("the log does not have the failure")
	}
}
