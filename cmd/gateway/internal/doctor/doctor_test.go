package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/agent/tools/shell/sandbox"
	"gateway/bus"
	"gateway/channels/gate"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/ops"
	"gateway/session"
	"gateway/store"
	"gateway/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

var tables = []store.Migration{bus.Migration, gate.Migration, session.Migration}

// A healthyCase is a gateway without problems.
type healthyCase struct {
	t *testing.T
	Case
	home   string
	status map[string]int    // status codes of the fake servers, by path
	body   map[string]string // bodies of their answers, by path
	date   time.Time         // time of the fake servers

	revoked string // the authorization that the servers refuse
}

func newHealthyCase(t *testing.T) *healthyCase {
	t.Helper()
	p := &healthyCase{t: t, home: t.TempDir(), status: make(map[string]int), date: time.Now(),
		body: map[string]string{
			"/bot123:TOKEN/getMe":      `{"ok":true,"result":{"username":"bello_bot"}}`,
			"/api/v9/users/@me":        `{"username":"bello"}`,
			"/api/v9/applications/@me": `{"flags":524288}`,
			"/v1/models":               `{"data":[{"id":"m1"}]}`,
		}}
	if err := os.Chmod(p.home, 0o700); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", p.date.UTC().Format(http.TimeFormat))
		discord := strings.HasPrefix(r.URL.Path, "/api/v9/")
		if s := p.status[r.URL.Path]; s != 0 {
			w.WriteHeader(s)
		} else if p.revoked != "" && r.Header.Get("Authorization") == p.revoked {
			w.WriteHeader(http.StatusUnauthorized)
		} else if discord && !strings.HasPrefix(r.Header.Get("User-Agent"), "DiscordBot (") {
			w.WriteHeader(http.StatusForbidden)
		}
		fmt.Fprint(w, p.body[r.URL.Path])
	}))
	t.Cleanup(srv.Close)
	p.configure(fmt.Sprintf(`[http]
listen = ""
[exec]
sandbox = "off"
[agent]
model = "m"
[models.m]
model = "m1"
base_url = "%[1]s/v1"
key = "KEY"
[channels.telegram]
token = "123:TOKEN"
api_url = %[1]q
[channels.discord]
token = "DTOKEN"
api_url = %[1]q
[channels.whatsapp]
`, srv.URL))
	p.Case = Case{Config: p.Config, File: filepath.Join(p.home, "config.toml"), Migrations: tables,
		Sandbox:    func(context.Context) (*sandbox.Sandbox, error) { return nil, nil },
		LastBackup: func() (time.Time, error) { return time.Time{}, nil },
		WhatsApp: func(name string) string {
			return filepath.Join(p.home, "whatsapp-"+name+".db")
		},
		LookPath: func(string) (string, error) { return "/bin/true", nil },
		Disk:     func(string) (ops.Space, error) { return ops.Space{Free: 1 << 40}, nil },
	}
	p.link(1)
	p.database(func(*store.Tx) error { return nil })
	return p
}

// configure writes the configuration file and reads it.
func (p *healthyCase) configure(text string) {
	p.t.Helper()
	file := filepath.Join(p.home, "config.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	cfg, err := config.Load(file, []string{"HOME=" + p.home, "GATEWAY_HOME=" + p.home})
	if err != nil {
		p.t.Fatal(err)
	}
	p.Config = cfg
}

// more adds lines to the configuration.
func (p *healthyCase) more(text string) {
	p.t.Helper()
	old, err := os.ReadFile(p.File)
	if err != nil {
		p.t.Fatal(err)
	}
	p.configure(string(old) + text)
}

// link creates the file of a WhatsApp account with this number of devices.
func (p *healthyCase) link(devices int) {
	p.t.Helper()
	db, err := sql.Open("sqlite", p.WhatsApp("whatsapp"))
	if err != nil {
		p.t.Fatal(err)
	}
	defer db.Close()
	_, err = db.Exec("DROP TABLE IF EXISTS whatsmeow_device; CREATE TABLE whatsmeow_device (jid)")
	for range devices {
		_, e := db.Exec("INSERT INTO whatsmeow_device VALUES ('1@s.whatsapp.net')")
		err = errors.Join(err, e)
	}
	if err = errors.Join(err, os.Chmod(p.WhatsApp("whatsapp"), 0o600)); err != nil {
		p.t.Fatal(err)
	}
}

// database changes the database of the healthyCase with fn.
func (p *healthyCase) database(fn func(tx *store.Tx) error) {
	p.t.Helper()
	db, err := store.Open(p.t.Context(), p.Config.Store.Path(), tables, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	err = errors.Join(db.Tx(p.t.Context(), fn), db.Close())
	if err = errors.Join(err, os.Chmod(p.Config.Store.Path(), 0o600)); err != nil {
		p.t.Fatal(err)
	}
}

// readLong begins a read of the database that keeps much in its write-ahead log.
func (p *healthyCase) readLong() {
	p.t.Helper()
	db, err := store.Open(p.t.Context(), p.Config.Store.Path(), tables, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	rows, err := db.Read(p.t.Context()).Query("SELECT package FROM schema")
	if err != nil || !rows.Next() {
		p.t.Fatal("no row", err)
	}
	p.t.Cleanup(func() {
		if err := errors.Join(rows.Close(), db.Close()); err != nil {
			p.t.Error(err)
		}
	})
	err = db.Tx(p.t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec("CREATE TABLE big AS SELECT zeroblob($1) AS b", store.MaxHeld+1<<20)
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

func TestWell(t *testing.T) {
	p := newHealthyCase(t)
	list := Examine(t.Context(), p.Case)
	for _, f := range list {
		if f.State == Bad || f.Remedy != "" || f.ID == "" || f.Text == "" {
			t.Errorf("%+v, want all to be well", f)
		}
	}
	for _, id := range []string{"config", "home", "disk", "files", "store", "store.integrity",
		"store.owner", "backup", "clock", "sandbox", "http", "channel.telegram",
		"channel.discord",
		"channel.whatsapp", "model.m"} {
		if !slices.ContainsFunc(list, func(f Finding) bool { return f.ID == id }) {
			t.Errorf("nothing is said of %s", id)
		}
	}
}

// Each problem is found, without any other problem, and has a remedy.
func TestSick(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name       string
		hurt       func(p *healthyCase)
		id, remedy string
		note       bool // the finding is only a note
		unixOnly   bool
	}{
		{name: "home is open", hurt: func(p *healthyCase) { must(os.Chmod(p.home, 0o755)) },
			id: "home", remedy: "chmod 700", unixOnly: true},
		{name: "home is a file", hurt: func(p *healthyCase) {
			p.Config.Gateway.Home = p.File
		}, id: "home", remedy: "Move that file away"},
		{name: "no room", hurt: func(p *healthyCase) {
			p.Disk = func(string) (ops.Space, error) { return ops.Space{Free: 1 << 20}, nil }
		}, id: "disk", remedy: "Free some space"},
		{name: "no room for the database", hurt: func(p *healthyCase) {
			p.Config.Store.URL = "sqlite:" + filepath.Join(t.TempDir(), "gateway.db")
			p.Disk = func(dir string) (ops.Space, error) {
				if dir == filepath.Dir(p.Config.Store.Path()) {
					return ops.Space{Free: 1 << 20}, nil
				}
				return ops.Space{Free: 1 << 40}, nil
			}
		}, id: "disk", remedy: "Free some space"},
		{name: "no inodes", hurt: func(p *healthyCase) {
			p.Disk = func(string) (ops.Space, error) {
				return ops.Space{Free: 1 << 40, Files: 3, Counts: true}, nil
			}
		}, id: "disk", remedy: "no inodes"},
		{name: "file outside is open", hurt: func(p *healthyCase) {
			p.Config.Log.File = filepath.Join(t.TempDir(), "log")
			must(os.WriteFile(p.Config.Log.File, nil, 0o600))
			must(os.Chmod(p.Config.Log.File, 0o644))
		}, id: "files", remedy: "chmod 600", unixOnly: true},
		{name: "database is damaged", hurt: func(p *healthyCase) {
			var root, page int64 // the page where a table begins, and the size of a page
			p.database(func(tx *store.Tx) error {
				return tx.QueryRow("SELECT rootpage, (SELECT page_size FROM pragma_page_size) "+
					"FROM sqlite_master WHERE name = 'outbox'").Scan(&root, &page)
			})
			f, err := os.OpenFile(p.Config.Store.Path(), os.O_WRONLY, 0)
			must(err)
			_, err = f.WriteAt([]byte(strings.Repeat("x", int(page))), (root-1)*page)
			must(errors.Join(err, f.Close()))
		}, id: "store.integrity", remedy: "restore a backup"},
		{name: "database is none", hurt: func(p *healthyCase) {
			must(os.WriteFile(p.Config.Store.Path(), []byte(strings.Repeat("x", 8192)), 0o600))
		}, id: "store", remedy: "restore a backup"},
		{name: "database is newer", hurt: func(p *healthyCase) {
			p.database(func(tx *store.Tx) error {
				_, err := tx.Exec("UPDATE schema SET version = 99 WHERE package = 'bus'")
				return err
			})
		}, id: "store", remedy: "Upgrade this one"},
		{name: "database is older", hurt: func(p *healthyCase) {
			p.database(func(tx *store.Tx) error {
				_, err := tx.Exec("UPDATE schema SET version = 0 WHERE package = 'bus'")
				return err
			})
		}, id: "store", note: true},
		{name: "somebody reads for long", hurt: func(p *healthyCase) { p.readLong() },
			id: "store.log", remedy: "End that program"},
		{name: "backup is old", hurt: func(p *healthyCase) {
			p.LastBackup = func() (time.Time, error) {
				return time.Now().Add(-8 * 24 * time.Hour), nil
			}
		}, id: "backup", remedy: "gateway backup"},
		{name: "backup is not known", hurt: func(p *healthyCase) {
			p.LastBackup = func() (time.Time, error) { return time.Time{}, errors.New("nonsense") }
		}, id: "backup", remedy: "gateway backup"},
		{name: "clock is late", hurt: func(p *healthyCase) {
			p.database(func(tx *store.Tx) error {
				_, err := bus.NewInbox().Put(tx, bus.InboundMessage{ID: "1",
					From: bus.Address{Account: "a", Chat: "b"}}, time.Now().Add(time.Hour))
				return err
			})
		}, id: "clock", remedy: "NTP"},
		{name: "clock of others", hurt: func(p *healthyCase) { p.date = time.Now().Add(time.Hour) },
			id: "clock.network", remedy: "NTP"},
		{name: "no sandbox", hurt: func(p *healthyCase) {
			p.Sandbox = func(context.Context) (*sandbox.Sandbox, error) {
				return nil, errors.New("no bwrap")
			}
		}, id: "sandbox", remedy: "Install bubblewrap"},
		{name: "no program", hurt: func(p *healthyCase) {
			p.more("[mcp.tool]\ncommand = [\"nothing-like-it\"]\n")
			p.LookPath = func(name string) (string, error) {
				if name == "git" {
					return name, nil
				}
				return "", errors.New("not found")
			}
		}, id: "mcp.tool", remedy: "Install nothing-like-it"},
		{name: "address is used", hurt: func(p *healthyCase) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			must(err)
			t.Cleanup(func() { l.Close() })
			p.Config.HTTP.Listen = l.Addr().String()
		}, id: "http", remedy: "set another address"},
		{name: "wrong token of Telegram", hurt: func(p *healthyCase) {
			p.status["/bot123:TOKEN/getMe"] = 401
		}, id: "channel.telegram", remedy: "@BotFather"},
		{name: "Telegram is down", hurt: func(p *healthyCase) {
			p.status["/bot123:TOKEN/getMe"] = 502
		}, id: "channel.telegram", remedy: "Try again later"},
		{name: "Telegram hides groups", hurt: func(p *healthyCase) {
			ch := p.Config.Channels["telegram"]
			ch.Activation = "always"
			p.Config.Channels["telegram"] = ch
		}, id: "channel.telegram.privacy", remedy: "/setprivacy"},
		{name: "wrong token of Discord", hurt: func(p *healthyCase) {
			p.status["/api/v9/users/@me"] = 401
		}, id: "channel.discord", remedy: "developer portal"},
		{name: "no intents", hurt: func(p *healthyCase) {
			p.body["/api/v9/applications/@me"] = `{"flags":0}`
		}, id: "channel.discord.intents", remedy: "Message Content Intent"},
		{name: "not linked", hurt: func(p *healthyCase) { p.link(0) },
			id: "channel.whatsapp", remedy: "gateway pair whatsapp"},
		{name: "never linked", hurt: func(p *healthyCase) { must(os.Remove(p.WhatsApp("whatsapp"))) },
			id: "channel.whatsapp", remedy: "gateway pair whatsapp"},
		{name: "wrong key", hurt: func(p *healthyCase) { p.status["/v1/models"] = 401 },
			id: "model.m", remedy: "Set a key"},
		{name: "quota", hurt: func(p *healthyCase) { p.status["/v1/models"] = 429 },
			id: "model.m", remedy: "fallback"},
		{name: "no list", hurt: func(p *healthyCase) { p.status["/v1/models"] = 404 },
			id: "model.m", note: true},
		{name: "unknown model", hurt: func(p *healthyCase) {
			p.body["/v1/models"] = `{"data":[{"id":"other"}]}`
		}, id: "model.m", note: true},
		{name: "nobody answers", hurt: func(p *healthyCase) {
			m := p.Config.Models["m"]
			m.BaseURL = "http://127.0.0.1:1/v1"
			p.Config.Models["m"] = m
		}, id: "model.m", remedy: "network"},
		{name: "not ready", hurt: func(p *healthyCase) {
			endpoint(p, `{"ready":false,"checks":[{"name":"channel tg","state":"down"}]}`, 503)
		}, id: "ready.channel-tg", remedy: "log"},
		{name: "somebody else answers", hurt: func(p *healthyCase) { endpoint(p, "hello", 200) },
			id: "ready", remedy: "restart the gateway"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.unixOnly && !modes {
				t.Skip("files have no modes here")
			}
			p := newHealthyCase(t)
			c.hurt(p)
			found := false
			for _, f := range Examine(t.Context(), p.Case) {
				if strings.Contains(f.Text+f.Remedy, "TOKEN") || strings.Contains(f.Text, "KEY") {
					t.Errorf("there is a secret in %+v", f)
				}
				switch {
				case f.ID == c.id && c.note && f.State == Note, f.ID == c.id && f.State == Bad &&
					!c.note && strings.Contains(f.Remedy, c.remedy):
					found = true
				case f.State == Bad:
					t.Errorf("%+v is found, too", f)
				}
			}
			if !found {
				t.Errorf("%s with the remedy %q is not found in\n%+v", c.id, c.remedy,
					Examine(t.Context(), p.Case))
			}
		})
	}
}

// Each key of a model is tried. A refused key is named by its position and its end.
func TestKeys(t *testing.T) {
	p := newHealthyCase(t)
	p.more("[models.more]\nmodel = \"m1\"\nbase_url = \"" + p.Config.Models["m"].BaseURL +
		"\"\nkeys = [\"the-good-key-of-more\", \"the-REVOKED-key-of-m\"]\n[memory]\nmodel = \"more\"\n")
	p.revoked = "Bearer the-REVOKED-key-of-m"
	want := map[string]State{"Model m": OK, "Model more, key 1 (…more)": OK,
		"Model more, key 2 (…of-m)": Bad}
	for _, f := range Examine(t.Context(), p.Case) {
		if strings.Contains(f.What+f.Text, "REVOKED") {
			t.Errorf("there is a secret in %+v", f)
		}
		if want[f.What] == f.State {
			delete(want, f.What)
		}
	}
	if len(want) > 0 {
		t.Errorf("%v is not found in\n%+v", want, Examine(t.Context(), p.Case))
	}
}

// endpoint starts a server that answers like a running gateway of the healthyCase.
func endpoint(p *healthyCase, body string, status int) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	p.t.Cleanup(srv.Close)
	unlock, err := store.Lock(filepath.Join(p.home, "http.lock"))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = unlock() }) // the lock file is removed with its folder
	text := fmt.Sprintf(`{"address":%q,"token":"TOKEN","pid":7}`, srv.Listener.Addr())
	if err := os.WriteFile(filepath.Join(p.home, "http.json"), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// A request with the token of a running gateway does not use a proxy.
func TestReadyWithoutProxy(t *testing.T) {
	p := newHealthyCase(t)
	endpoint(p, `{"ready":true}`, http.StatusOK)
	p.Transport = &http.Transport{Proxy: func(r *http.Request) (*url.URL, error) {
		if r.URL.Path == "/readyz" {
			t.Error("a proxy is asked")
		}
		return nil, nil
	}}
	t.Cleanup(p.Transport.CloseIdleConnections)
	list := Examine(t.Context(), p.Case)
	if !slices.ContainsFunc(list, func(f Finding) bool { return f.ID == "ready" && f.State == OK }) {
		t.Errorf("the gateway is not ready:\n%+v", list)
	}
}

// Offline, the doctor sends no requests.
func TestOffline(t *testing.T) {
	p := newHealthyCase(t)
	p.Offline = true
	p.status["/v1/models"], p.status["/api/v9/users/@me"] = 401, 401
	if list := Examine(t.Context(), p.Case); CountBad(list) > 0 {
		t.Errorf("offline the doctor says\n%+v", list)
	}
}

// The finding about the lock names the process that has the database.
func TestLockHolder(t *testing.T) {
	p := newHealthyCase(t)
	db, err := store.Open(t.Context(), p.Config.Store.Path(), tables, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := os.Stat("/proc/locks"); err != nil {
		return // only this file tells the process
	}
	want := fmt.Sprintf("process %d has the database", os.Getpid())
	for _, f := range Examine(t.Context(), p.Case) {
		if f.ID == "store.owner" && f.Text != want {
			t.Errorf("the doctor says %q, want %q", f.Text, want)
		}
	}
}

// The doctor reports personas without documents, personas that no policy chooses, and unknown
// skills. It also tries the models that policies and personas use.
func TestPersonas(t *testing.T) {
	p := newHealthyCase(t)
	// The path must not act as a pattern.
	p.Persona = func(name string) string { return filepath.Join(p.home, "personas [all]", name) }
	p.SkillNames = func() ([]string, error) { return []string{"cook", "weather"}, nil }
	if err := os.MkdirAll(p.Persona("tutor"), 0o700); err != nil {
		t.Fatal(err)
	}
	p.file("personas [all]/tutor/SOUL.md", "You are a tutor.", 0o600)
	p.more("[models.other]\nmodel = \"m7\"\nbase_url = \"" + p.Config.Models["m"].BaseURL + "\"\n" +
		"[personas.tutor]\nskills = [\"cok\", \"wea*\"]\nmodel = \"other\"\n[personas.bare]\n" +
		"[personas.idle]\n[policies.a]\naccounts = [\"discord\"]\npersona = \"tutor\"\n" +
		"[policies.b]\nchats = [\"discord/1\"]\npersona = \"bare\"\nskills = [\"none\"]\n")
	var got []string
	for _, f := range Examine(t.Context(), p.Case) {
		if f.ID == "personas" || f.ID == "skills" || strings.Contains(f.What+f.Text, "other") {
			got = append(got, strings.ReplaceAll(fmt.Sprint(f.What, " ", f.State, " ", f.Text), p.home, ""))
		}
	}
	text := strings.Join(got, "\n")
	for _, want := range []string{"[personas.tutor] ok documents of its own: 1",
		"[personas.bare] note no documents of its own in /personas [all]/bare",
		"[personas.idle] note no policy chooses it",
		`[personas.tutor] skills: there is no skill "cok"; did you mean "cook"?`,
		`[policies.b] skills: there is no skill "none"`, "other"} {
		if !strings.Contains(text, want) {
			t.Errorf("the findings lack %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "wea*") {
		t.Errorf("a pattern that matches is named:\n%s", text)
	}
}

// The doctor reads only the last message, which is the newest. It does not report a clock that was
// ahead once and is right now.
func TestClockOnceAhead(t *testing.T) {
	p := newHealthyCase(t)
	p.database(func(tx *store.Tx) error {
		for id, at := range map[string]time.Time{"1": time.Now().Add(time.Hour), "2": time.Now()} {
			_, err := tx.Exec(`INSERT INTO inbox (id, account, chat, message, state, body, received_ms)
				VALUES ($1, 'a', 'b', $1, 'done', '{}', $2)`, id, at.UnixMilli())
			if err != nil {
				return err
			}
		}
		return nil
	})
	for _, f := range Examine(t.Context(), p.Case) {
		if f.ID == "clock" && f.Remedy != "" {
			t.Errorf("there is a problem: %+v", f)
		}
	}
}
