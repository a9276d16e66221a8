package doctor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gateway/cmd/gateway/internal/config"
	"gateway/store"
)

// audit returns the problems that the audit finds in the gateway of c.
func (p *healthyCase) audit(change func(*AuditCase)) []Problem {
	p.t.Helper()
	s := AuditCase{Case: p.Case}
	if change != nil {
		change(&s)
	}
	list, err := Audit(p.t.Context(), s)
	if err != nil {
		p.t.Fatal(err)
	}
	return list
}

// newSafe returns a gateway in which no rule finds a problem.
func newSafe(t *testing.T) *healthyCase {
	t.Helper()
	p := newHealthyCase(t)
	p.replace("\n[channels.whatsapp]", "\nowners = [1]\n[channels.whatsapp]")
	p.replace(`key = "KEY"`, `key = "file:key.txt"`)
	p.replace(`token = "123:TOKEN"`, `token = "file:token.txt"`)
	p.replace(`token = "DTOKEN"`, `token = "file:other.txt"`)
	if err := os.Mkdir(filepath.Join(p.home, "workspace"), 0o700); err != nil {
		t.Fatal(err)
	}
	return p
}

// replace replaces a text in the configuration.
func (p *healthyCase) replace(old, new string) {
	p.t.Helper()
	for name, text := range map[string]string{"key.txt": "KEY", "token.txt": "123:TOKEN",
		"other.txt": "DTOKEN"} {
		p.file(name, text, 0o600)
	}
	text, err := os.ReadFile(p.File)
	if err != nil {
		p.t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		p.t.Fatalf("there is no %q in\n%s", old, text)
	}
	p.configure(strings.Replace(string(text), old, new, 1))
	p.Case.Config = p.Config
}

// file writes a file with a mode into the home.
func (p *healthyCase) file(name, text string, mode os.FileMode) {
	p.t.Helper()
	path := filepath.Join(p.home, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		p.t.Fatal(err)
	}
}

// chmod makes a file of the home, and the home itself, readable for everybody.
func (p *healthyCase) chmod(name string) {
	p.t.Helper()
	for path, mode := range map[string]os.FileMode{filepath.Join(p.home, name): 0o644,
		p.home: 0o755} {
		if err := os.Chmod(path, mode); err != nil {
			p.t.Fatal(err)
		}
	}
}

// Each rule finds its problem, and no rule finds a problem in a safe gateway.
func TestRules(t *testing.T) {
	safe := newSafe(t)
	if list := safe.audit(nil); len(list) > 0 {
		t.Fatalf("of a safe gateway it is said\n%+v", list)
	}
	exec := func(p *healthyCase, more string) {
		p.replace(`sandbox = "off"`, `sandbox = "auto"`+"\n"+more)
	}
	open := func(p *healthyCase) {
		p.replace("[channels.discord]\n", "[channels.discord]\naccess = \"open\"\n")
	}
	cases := map[string]struct {
		severity Severity
		damage   func(p *healthyCase)
		change   func(s *AuditCase)
	}{
		"GS001": {High, func(p *healthyCase) { p.chmod("") }, nil},
		"GS002": {High, func(p *healthyCase) { p.chmod("gateway.db") }, nil},
		"GS003": {High, func(p *healthyCase) {
			p.chmod("config.toml")
			if err := os.Chmod(p.File, 0o666); err != nil {
				p.t.Fatal(err)
			}
		}, nil},
		"GS004": {High, func(p *healthyCase) {
			p.file("http.json", "{}", 0o600)
			p.chmod("http.json")
		}, nil},
		"GS005": {Medium, func(p *healthyCase) {
			p.file("log.txt", "", 0o600)
			p.more("[log]\nfile = \"log.txt\"\n")
			p.chmod("log.txt")
		}, nil},
		"GS006": {High, func(p *healthyCase) { p.chmod("whatsapp-whatsapp.db") }, nil},
		"GS007": {High, func(p *healthyCase) {
			p.file("old.tar.gz", "", 0o600)
			p.chmod("old.tar.gz")
		}, nil},
		"GS008": {Medium, func(p *healthyCase) { p.replace("file:key.txt", "KEY") }, nil},
		"GS009": {High, func(p *healthyCase) { p.chmod("key.txt") }, nil},
		"GS010": {Medium, open, nil},
		"GS011": {High, func(p *healthyCase) { open(p); exec(p, "") }, nil},
		"GS012": {Medium, open, nil},
		"GS013": {Low, func(p *healthyCase) { p.replace("owners = [1]", "") }, nil},
		"GS014": {High, func(p *healthyCase) { p.replace(`sandbox = "off"`, `sandbox = "none"`) }, nil},
		"GS015": {Medium, func(p *healthyCase) { exec(p, "network = true") }, nil},
		"GS016": {Medium, func(p *healthyCase) { exec(p, `env = ["MY_TOKEN"]`) }, nil},
		"GS017": {High, func(p *healthyCase) {
			p.more("[web]\nallow_networks = [\"10.0.0.0/8\"]\n")
		}, nil},
		"GS018": {Medium, func(p *healthyCase) {
			p.replace(`listen = ""`, "listen = \"0.0.0.0:1\"\ntoken = \"file:long.txt\"")
		}, nil},
		"GS019": {High, func(p *healthyCase) {
			p.more("[hooks.x]\nto = \"discord/1\"\nsecret = \"file:long.txt\"\n" +
				"role = \"owner\"\n")
		}, nil},
		"GS020": {Medium, func(p *healthyCase) {
			p.more("[tools.read_file]\nguest = \"allow\"\n")
		}, nil},
		"GS021": {High, func(p *healthyCase) {
			exec(p, "")
			p.more("[tools.exec]\nguest = \"allow\"\n")
		}, nil},
		"GS022": {Medium, func(p *healthyCase) {
			p.more("[mcp.x]\ncommand = [\"true\"]\nsandbox = false\n")
		}, nil},
		"GS023": {Medium, func(p *healthyCase) {
			p.more("[mcp.x]\nurl = \"http://example.com/\"\n")
		}, nil},
		"GS024": {Low, func(p *healthyCase) {
			p.more("[roots.x]\npath = \"/srv\"\nwrite = true\n")
		}, nil},
		"GS025": {Medium, func(p *healthyCase) { p.more("[approvals]\napprover = \"user\"\n") }, nil},
		"GS026": {Medium, func(*healthyCase) {}, func(s *AuditCase) { s.Root = true }},
		"GS027": {Low, func(p *healthyCase) { p.file(".git", "", 0o600) }, nil},
		"GS028": {High, func(p *healthyCase) {
			if err := os.Chmod(filepath.Join(p.home, "workspace"), 0o777); err != nil {
				p.t.Fatal(err)
			}
		}, nil},
		"GS029": {Medium, func(*healthyCase) {}, func(s *AuditCase) {
			s.Skills = func(context.Context) (map[string]string, error) {
				return map[string]string{"b": "changed"}, nil
			}
		}},
		"GS030": {Low, open, nil},
		"GS031": {Medium, func(p *healthyCase) {
			p.more("[policies.x]\nchats = [\"telegram/-5\"]\ndeny = [\"time\"]\n")
			p.database(func(tx *store.Tx) error {
				_, err := tx.Exec("INSERT INTO moves VALUES ('telegram', '-1005', '-5')")
				return err
			})
		}, nil},
	}
	for i, r := range Rules() {
		t.Run(r.ID, func(t *testing.T) {
			c, ok := cases[r.ID]
			if !ok || r.Title == "" || r.Meaning == "" || r.Remedy == "" {
				t.Fatalf("%+v has no case, or says too little", r)
			}
			if i > 0 && Rules()[i-1].ID >= r.ID {
				t.Errorf("%s is not in order", r.ID)
			}
			if r.Fixable && !modes {
				t.Skip("files have no modes here")
			}
			p := newSafe(t)
			p.file("long.txt", "0123456789abcdef", 0o600)
			c.damage(p)
			is := func(f Problem) bool { return f.ID == r.ID }
			list := p.audit(c.change)
			at := slices.IndexFunc(list, is)
			if at < 0 || list[at].Severity != c.severity {
				t.Fatalf("%s is not found as %s in\n%+v", r.ID, c.severity, list)
			}
			if err := Fix(list); err != nil {
				t.Fatal(err)
			}
			fixed := list[at].Fixed != ""
			left := slices.ContainsFunc(p.audit(c.change), is)
			if fixed != r.Fixable || left == fixed {
				t.Errorf("corrected: %v, left: %v; want it corrected: %v", fixed, left, r.Fixable)
			}
			if fixed && (CountUnfixed(list, High) > 0) {
				t.Errorf("after the correction it is said\n%+v", list)
			}
		})
	}
	if len(cases) != len(Rules()) {
		t.Errorf("%d cases for %d rules", len(cases), len(Rules()))
	}
}

// A data directory that others can't open protects the files in it, so an open file is only a
// problem of low severity.
func TestProtected(t *testing.T) {
	if !modes {
		t.Skip("files have no modes here")
	}
	p := newSafe(t)
	p.chmod("gateway.db")
	if err := os.Chmod(p.home, 0o700); err != nil {
		t.Fatal(err)
	}
	list := p.audit(nil)
	if len(list) != 1 || list[0].ID != "GS002" || list[0].Severity != Low {
		t.Errorf("it is said\n%+v\nwant GS002, low", list)
	}
}

// Everybody may read a configuration that only refers to its secrets. Nobody else may read a
// configuration that contains a secret.
func TestReadableConfiguration(t *testing.T) {
	if !modes {
		t.Skip("files have no modes here")
	}
	p := newSafe(t)
	p.File = filepath.Join(t.TempDir(), "config.toml") // as in /etc or from a ConfigMap
	for text, want := range map[string][]string{
		"[models.m]\nkey = \"env:KEY\"\n": nil,
		"[models.m]\nkey = \"KEY\"\n":     {"GS003", "GS008"},
	} {
		if err := os.WriteFile(p.File, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(p.File, 0o644); err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, problem := range p.audit(nil) {
			ids = append(ids, problem.ID)
		}
		if !slices.Equal(ids, want) {
			t.Errorf("of %q it is said %v, want %v", text, ids, want)
		}
		if sick := CountBad(p.examineFiles(t.Context())); (sick > 0) != (want != nil) {
			t.Errorf("of %q the doctor has %d complaints", text, sick)
		}
	}
}

// A problem of an address does not show the password in the address.
func TestAddressWithPassword(t *testing.T) {
	p := newSafe(t)
	p.more("[models.x]\nmodel = \"m\"\nkey = \"file:key.txt\"\n" +
		"base_url = \"http://user:hunter2@example.com/v1\"\n")
	list := p.audit(nil)
	if len(list) != 1 || list[0].ID != "GS023" || strings.Contains(list[0].Text, "hunter2") {
		t.Errorf("it is said\n%+v\nwant GS023 without the password", list)
	}
}

// An owner who was approved, and is not in the configuration, counts as an owner.
func TestApprovedOwner(t *testing.T) {
	p := newSafe(t)
	p.replace("owners = [1]", "")
	p.database(func(tx *store.Tx) error {
		_, err := tx.Exec("INSERT INTO people (name, role, created_ms) VALUES ('A', 'owner', 0)")
		if err == nil {
			_, err = tx.Exec("INSERT INTO identities (account, sender, person, chat) " +
				"VALUES ('telegram', '1', 1, '')")
		}
		return err
	})
	if list := p.audit(nil); len(list) > 0 {
		t.Errorf("it is said\n%+v", list)
	}
}

// Fix does not change the target of a link. Its error names the link.
func TestFixLink(t *testing.T) {
	if !modes {
		t.Skip("files have no modes here")
	}
	p := newSafe(t)
	target := filepath.Join(t.TempDir(), "another.tar.gz")
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(target, 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(p.home, "backup.tar.gz")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	p.chmod("gateway.db")
	list := p.audit(nil)
	err := Fix(list)
	if err == nil || !strings.Contains(err.Error(), link+" is a link") {
		t.Errorf("Fix = %v, want an error that names %s", err, link)
	}
	info, err := os.Stat(target)
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v; want its mode as it was, 0644", info.Mode(), err)
	}
	if info, err = os.Stat(filepath.Join(p.home, "gateway.db")); err != nil ||
		info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want mode 0600", info.Mode(), err)
	}
}

// If another user owns a file that belongs to our group, the group may read it, as with secrets
// in Kubernetes. The file is exposed if the group may write it or others may read it.
func TestLent(t *testing.T) {
	if !modes || os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]bool{0o440: false, 0o400: false, 0o460: true,
		0o444: true} {
		for _, owner := range []int{1, 0} {
			err := os.Chown(file, owner, os.Getegid())
			if err == nil {
				err = os.Chmod(file, mode)
			}
			if err != nil {
				t.Fatal(err)
			}
			want := want || owner == 0 && mode == 0o440
			if _, got := Exposed(file, t.TempDir()); got != want {
				t.Errorf("of user %d, mode %04o it is open: %t, want %t", owner, mode, got, want)
			}
		}
	}
}

// A policy that denies a tool on all accounts, or requires approval for it, counts like a rule
// that denies the tool. A policy for a single chat or account does not.
func TestPolicyAnswersFinding(t *testing.T) {
	const everywhere = "[policies.p]\naccounts = [\"telegram\", \"discord\", \"whatsapp\"]\n"
	for policy, want := range map[string]bool{
		"": true, everywhere + "deny = [\"exec\", \"read_*\"]\n": false,
		everywhere + "tools = [\"time\"]\n":                         false,
		everywhere + "ask = [\"*\"]\n":                              false,
		everywhere + "deny = [\"time\"]\n":                          true,
		"[policies.p]\nchats = [\"discord/1\"]\ndeny = [\"*\"]\n":   true,
		"[policies.p]\naccounts = [\"telegram\"]\ndeny = [\"*\"]\n": true,
	} {
		p := newSafe(t)
		p.replace("[channels.discord]\n", "[channels.discord]\naccess = \"open\"\n")
		p.replace(`sandbox = "off"`, `sandbox = "auto"`)
		p.more("[tools.read_file]\nguest = \"allow\"\n[tools.exec]\nguest = \"allow\"\n" +
			"user = \"allow\"\n" + policy)
		list := p.audit(nil)
		for _, id := range []string{"GS011", "GS020", "GS021"} {
			got := slices.ContainsFunc(list, func(f Problem) bool { return f.ID == id })
			if got != want {
				t.Errorf("%s is found: %v; want %v with\n%s", id, got, want, policy)
			}
		}
	}
}

// Backups are found also if the path of the home looks like a pattern.
func TestBackupsInBrackets(t *testing.T) {
	home := filepath.Join(t.TempDir(), "bots [home]")
	if err := os.MkdirAll(filepath.Join(home, "backups"), 0o700); err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(home, "a.tar.gz"), filepath.Join(home, "backups", "b")}
	for _, path := range want {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := auditor{cfg: &config.Config{Gateway: config.Gateway{Home: home}}}
	if got := a.backups(); !slices.Equal(got, want) {
		t.Errorf("the backups in %s are %q, want %q", home, got, want)
	}
}
