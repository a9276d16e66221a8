//go:build unix

package e2e

import (
	"context"
	"encoding/hex"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"gateway/agent/llm/anthropic/anthropictest"
	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/telegram/telegramtest"
	"gateway/channels/whatsapp/whatsapptest"
	"gateway/cmd/gateway/internal/app"
)

// A setupHome has a home without a configuration, and environment variables with the addresses of
// the fakes of all platforms.
type setupHome struct {
	*world
	discord  *onDiscord
	whatsapp *whatsapptest.Server
	ann      *whatsapptest.Person
	env      []string
}

func newSetupHome(t *testing.T) *setupHome {
	t.Helper()
	n := &setupHome{world: newWorld(t, worldOptions{}), discord: openDiscord(t),
		whatsapp: whatsapptest.New(nil)}
	n.discord.SetOwner("7")
	n.telegram.AddUser(telegramtest.User{ID: annID, First: "Ann"})
	url, err := n.whatsapp.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.whatsapp.Close)
	if n.ann, err = n.whatsapp.NewPerson(t.Context(), "Ann", whatsapptest.Known); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(n.home, "config.toml")); err != nil {
		t.Fatal(err)
	}
	n.home = filepath.Join(n.home, "home")
	n.env = []string{"OPENAI_BASE_URL=" + n.model.URL,
		"GATEWAY_WHATSAPP_ROOT=" + hex.EncodeToString(whatsapptest.RootKey[:]),
		"GATEWAY_CHANNELS__TELEGRAM__API_URL=" + n.url,
		"GATEWAY_CHANNELS__DISCORD__API_URL=" + n.discord.url,
		"GATEWAY_CHANNELS__WHATSAPP__API_URL=" + url, "GATEWAY_EXEC__SANDBOX=off",
		"GATEWAY_LOG__FORMAT=json"}
	return n
}

// gateway runs the program with the variables of n, further variables and a standard input.
func (n *setupHome) gateway(input string, env []string, args ...string) (string, error) {
	n.t.Helper()
	path, err := buildBinary()
	if err != nil {
		n.t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(append(n.environ(), n.env...), env...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// file returns the content of a file in the home. It checks that only the owner may read the
// file.
func (n *setupHome) file(name string) string {
	n.t.Helper()
	path := filepath.Join(n.home, name)
	info, err := os.Stat(path)
	if err != nil {
		n.t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		n.t.Errorf("%s has mode %v", name, info.Mode())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(text)
}

// isClean checks that none of the commands that inspect a home finds a problem.
func (n *setupHome) isClean() {
	n.t.Helper()
	for command, want := range map[string]string{
		"config check": "The configuration is correct.", "doctor": "All is well.",
		"security": "Nothing unsafe was found.",
	} {
		// The doctor waits only a short time, so it can fail on a slow machine.
		for deadline := time.Now().Add(patience); ; {
			out, err := n.gateway("", nil, strings.Fields(command)...)
			if os.Geteuid() == 0 { // GS026 depends on who runs the tests
				out = regexp.MustCompile(`(?m)^GS026 .*\n.*\n.*\n`).ReplaceAllString(out, want)
			}
			if err == nil && strings.Contains(out, want) && !strings.Contains(out, "✗") &&
				!strings.Contains(out, "\nGS") {
				break
			}
			if time.Now().After(deadline) {
				n.t.Fatalf("gateway %s: %v\n%s", command, err, out)
			}
		}
	}
}

// TestSetup checks that setup on a terminal asks all questions and repeats those that are
// answered wrongly. Afterwards the gateway answers the owner on all platforms.
func TestSetup(t *testing.T) {
	t.Parallel()
	n := newSetupHome(t)
	n.model.Keep(openaitest.DefaultKeep)
	n.model.Inject(1, openaitest.Fault{Status: http.StatusUnauthorized})
	p := n.sit(newVT(120, 200, ansi.WcWidth), n.env, "setup")
	answer := func(question, keys string) {
		t.Helper()
		p.sees(question)
		p.types(keys + enterKey)
	}
	answer("Provider, by number or name [openai]", "")
	p.hides("Key of openai", "sk-wrong")
	answer("Model [gpt-5.4-mini]", "")
	p.hides("The provider refuses the key", "sk-right")
	p.waits("the second question", func() bool {
		return strings.Count(p.vt.text(), "Model [gpt-5.4-mini]") == 2
	})
	p.types(enterKey)
	p.sees("It answers.")
	p.hides("Token of the bot", "nonsense")
	p.hides("This is not a token of Telegram", "123456:WRONG")
	p.hides("Telegram refuses the token", testToken)
	answer("or \"later\" [wait]", "")
	p.sees("Waiting for that.")
	link := regexp.MustCompile(`\?start=(\S+) `).FindStringSubmatch(p.text())
	if link == nil {
		t.Fatalf("no link to the bot:\n%s", p.text())
	}
	code := link[1]
	n.telegram.Say(bobID, bobID, "I am first")
	n.telegram.Say(annID, annID, "/start "+code)
	answer("Ann has sent it (id 7). Is that the owner?", "")
	p.hides("(Enter: no Discord)", discordToken)
	answer("An id (that of ann, who owns the bot, is 7)", "")
	answer("Connect it? [y/N]", "y")
	answer("Your number with", "+"+n.ann.Phone())
	answer("Link the account at the end", "+"+n.whatsapp.BotPhone())
	answer("Time zone", "Nowhere")
	answer(`There is no time zone "Nowhere"`, "Asia/Tokyo")
	p.sees("Write this?")
	if _, err := os.Stat(n.home); err == nil {
		t.Error("the home was made before the last question was answered")
	}
	p.types(enterKey)
	p.sees("Type this into the phone, until")
	shown := docPhoneCode.FindStringSubmatch(p.text() + "\n")
	if err := n.whatsapp.EnterCode(shown[1]); err != nil {
		t.Fatal(err)
	}
	p.sees("The account is linked.")
	p.sees("Start it: gateway\n")
	p.ends()

	for name, want := range map[string]string{"openai.key": "sk-right", "telegram.token": testToken,
		"discord.token": discordToken} {
		if got := n.file("secrets/" + name); got != want+"\n" {
			t.Errorf("%s has %q", name, got)
		}
		if strings.Contains(p.text(), want) || strings.Contains(n.file("config.toml"), want) {
			t.Errorf("%s is on the screen, or in the configuration", want)
		}
	}
	if want := setupFile(n); n.file("config.toml") != want {
		t.Errorf("the configuration is\n%s\nwant\n%s", n.file("config.toml"), want)
	}
	n.isClean()

	n.start(n.env...).ready()
	n.await("an answer to the code", func() bool { return len(n.texts(annID)) > 0 })
	n.answers(annID, "hello")
	if _, r := n.lastRequest(); r.Header.Get("Authorization") != "Bearer sk-right" {
		t.Errorf("the model was asked with %q", r.Header.Get("Authorization"))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := n.discord.wait(ctx, n.discord.ready); err != nil {
		t.Fatalf("Discord is not connected: %v", err)
	}
	n.discord.say("hello")
	if err := n.whatsapp.Wait(ctx, n.whatsapp.Connected); err != nil {
		t.Fatalf("WhatsApp is not connected: %v", err)
	}
	if _, err := n.ann.Say(t.Context(), "hello"); err != nil {
		t.Fatal(err)
	}
	if err := n.discord.wait(ctx, func() bool { return len(n.discord.direct()) > 0 }); err != nil {
		t.Errorf("no answer on Discord: %v", err)
	}
	if err := n.whatsapp.Wait(ctx, func() bool {
		for _, m := range n.ann.Messages("") {
			if m.FromBot {
				return true
			}
		}
		return false
	}); err != nil {
		t.Errorf("no answer on WhatsApp: %v", err)
	}
}

// setupFile is the configuration that TestSetup writes.
func setupFile(n *setupHome) string {
	return strings.NewReplacer("URL", n.model.URL, "PHONE", "+"+n.ann.Phone()).Replace(`[models.openai]
model = "gpt-5.4-mini"
base_url = "URL"
key = "file:secrets/openai.key"

[agent]
model = "openai"

[channels.telegram]
token = "file:secrets/telegram.token"
owners = ["7"]

[channels.discord]
token = "file:secrets/discord.token"
owners = ["7"]

[channels.whatsapp]
owners = ["PHONE"]
access = "allow"

[gateway]
timezone = "Asia/Tokyo"
`)
}

// TestSetupStops checks that Ctrl-C during setup, also while a secret is typed, changes nothing.
func TestSetupStops(t *testing.T) {
	t.Parallel()
	n := newSetupHome(t)
	p := n.sit(newVT(120, 200, ansi.WcWidth), n.env, "setup")
	p.sees("Provider, by number or name")
	p.types(enterKey)
	p.sees("Key of openai")
	p.types("sk-half\x03")
	p.sees("stopped: nothing was changed")
	until(t, "the end", p.done)
	if _, err := os.Stat(n.home); err == nil {
		t.Error("there is a home")
	}
}

// TestSetupTrouble checks that setup explains each wrong answer and asks again, and that the
// written files stay if the account of WhatsApp is not linked.
func TestSetupTrouble(t *testing.T) {
	t.Parallel()
	n := newSetupHome(t)
	n.withoutAPI("TELEGRAM")
	n.discord.SetContentIntent(false)
	n.model.Inject(1, openaitest.Fault{Status: http.StatusNotFound})
	n.model.Inject(1, openaitest.Fault{Status: http.StatusBadGateway})
	p := n.sit(newVT(160, 200, ansi.WcWidth), n.env, "setup")
	answer := func(question, keys string) {
		t.Helper()
		p.sees(question)
		p.types(keys + enterKey)
	}
	answer("Provider, by number or name", "nobody")
	answer(`There is no provider "nobody"`, "other")
	answer("Address of its API", "nonsense")
	answer("It begins with https://", n.model.URL)
	answer("Key of other", "")
	answer("It offers fake-model.", "missing")
	answer(`The provider has no model "missing", but fake-model.`, "fake-model")
	answer("can't be reached", "y")
	p.sees("It answers.")
	answer("(Enter: no Telegram)", "")
	p.hides("(Enter: no Discord)", discordToken)
	answer("switch on the Message Content Intent", "")
	p.waits("a second try", func() bool {
		return strings.Count(p.vt.text(), "Try it again?") == 3
	})
	p.types("n" + enterKey)
	answer("Who is the owner?", "@ann")
	answer(`Nobody has the id "@ann"`, "later")
	answer("Connect it? [y/N]", "perhaps")
	answer("Please answer y or n.", "yes")
	answer("Your number with", "12")
	answer(`Nobody has the id "12"`, "+1 (555) 000-0002")
	answer("Link the account at the end", "")
	answer("Time zone", "")
	answer("Write this?", "")
	p.sees("Scan this with the phone")
	p.types("\x03")
	p.sees("whatsapp is not linked: linking was stopped")
	p.sees("Link whatsapp with its phone: gateway pair whatsapp")
	p.sees("Write to the bot of discord. It answers with a code: gateway people approve CODE")
	p.ends()
	if text := n.file("config.toml"); !strings.Contains(text, `model = "main"`) ||
		!strings.Contains(text, `owners = ["+15550000002"]`) {
		t.Errorf("the configuration is\n%s", text)
	}
}

// TestSetupHint checks that a gateway without any configuration tells a person about setup.
func TestSetupHint(t *testing.T) {
	t.Parallel()
	n := newSetupHome(t)
	p := n.sit(newVT(120, 50, ansi.WcWidth), []string{"OLLAMA_HOST=127.0.0.1:1"})
	p.sees("For a real model leave this, and run `gateway setup`.")
	p.sees("demo · context")
	p.types("/exit" + enterKey)
	p.ends()
}

// TestSetupAgain checks that a second run changes only the answered settings, and keeps the
// comments and the other keys of the file.
func TestSetupAgain(t *testing.T) {
	t.Parallel()
	n := newSetupHome(t)
	claude := anthropictest.Start(t, "sk-claude",
		func(anthropictest.Request) anthropictest.Reply { return anthropictest.Reply{Text: "Yes."} })
	n.env = append(n.env, "ANTHROPIC_BASE_URL="+claude.URL+"/v1", "KEY=sk-claude", "WRONG=sk-wrong",
		"TOKEN="+testToken)
	n.withoutAPI("DISCORD", "WHATSAPP")
	writeFile(t, filepath.Join(n.home, "config.toml"), []byte(`# My gateway.
[gateway]
name = "Bello" # the dog

[models.old] # not used any more
model = "m"
base_url = "http://127.0.0.1:1/v1"

[agent]
model = "old" # for now
slots = 8

[channels.telegram]
token = "env:TOKEN"
owners = [
  7, # Ann
]
`))
	before := n.file("config.toml")
	for _, args := range [][]string{
		{"--key", "env:WRONG"}, {"--key", "sk-claude"}, {"--key", "env:NOTHING"},
		{"--key", "env:KEY", "--timezone", "Nowhere"}, {"--key", "env:KEY", "--telegram-owner", "@ann"},
	} {
		args := append([]string{"setup", "--no-input", "--provider", "anthropic"}, args...)
		out, err := n.gateway("", nil, args...)
		if err == nil || n.file("config.toml") != before {
			t.Errorf("%q was accepted:\n%s", args, out)
		}
	}
	out, err := n.gateway("", nil, "setup", "--no-input", "--provider", "anthropic",
		"--key", "env:KEY", "--telegram-owner", "8")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := strings.NewReplacer(`"old" # for`, `"anthropic" # for`, "7, # Ann", `7, "8", # Ann`).
		Replace(before) + `
[models.anthropic]
provider = "anthropic"
model = "claude-sonnet-5-5"
base_url = "` + claude.URL + `/v1"
key = "file:secrets/anthropic.key"
`
	if got := n.file("config.toml"); got != want {
		t.Errorf("the configuration is\n%s\nwant\n%s", got, want)
	}
	if n.file("secrets/anthropic.key") != "sk-claude\n" {
		t.Error("the key is another")
	}

	// Without a terminal, each line of the input answers a question. An empty line keeps the value.
	out, err = n.gateway("\n\n\n\n\n\n", nil, "setup")
	if err != nil || !strings.Contains(out, "Nothing has to be written.") ||
		n.file("config.toml") != want {
		t.Errorf("empty answers: %v\n%s", err, out)
	}
	if out, err = n.gateway("y\nanthropic\n", nil, "setup"); err == nil ||
		!strings.Contains(out, "answer it with --key; --no-input leaves") {
		t.Errorf("too few answers: %v\n%s", err, out)
	}
	n.isTaken(t)
}

// isTaken checks that a running gateway applies a change by setup, and that setup does not touch
// a file with mistakes.
func (n *setupHome) isTaken(t *testing.T) {
	t.Helper()
	p := n.start(n.env...)
	p.ready()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.wait(ctx, n.listens); err != nil {
		t.Fatalf("the gateway does not listen: %v", err)
	}
	out, err := n.gateway("", nil, "setup", "--no-input", "--telegram-owner", "9")
	if err != nil || !strings.Contains(out, "The running gateway applies this by itself.") {
		n.t.Errorf("a further owner: %v\n%s", err, out)
	}
	n.telegram.AddUser(telegramtest.User{ID: 9, First: "Cem"})
	p.says(reloaded, 1)
	n.wantReply(9, "/whoami", "owner")
	out, err = n.gateway("", nil, "setup", "--no-input", "--timezone", "Asia/Tokyo")
	if err != nil || !strings.Contains(out, "Restart it") || !strings.Contains(out, "timezone") {
		n.t.Errorf("another zone: %v\n%s", err, out)
	}
	broken := []byte("[agent]\nslots = \"many\"\n")
	writeFile(t, filepath.Join(n.home, "config.toml"), broken)
	out, err = n.gateway("", nil, "setup", "--no-input", "--timezone", "Asia/Seoul")
	if err == nil || !strings.Contains(out, "correct these first") ||
		n.file("config.toml") != string(broken) {
		n.t.Errorf("a file with mistakes: %v\n%s", err, out)
	}
}

// listens reports whether a gateway of the home accepts connections of terminals.
func (n *setupHome) listens() bool {
	conn, err := net.Dial("unix", app.SocketPath(n.home))
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was sent
	return true
}

// withoutAPI removes the environment variables of these platforms from n.env.
func (n *setupHome) withoutAPI(platforms ...string) {
	var env []string
	for _, v := range n.env {
		keep := true
		for _, p := range platforms {
			keep = keep && !strings.HasPrefix(v, "GATEWAY_CHANNELS__"+p)
		}
		if keep {
			env = append(env, v)
		}
	}
	n.env = env
}

// TestSetupLocal checks that a model server on this machine is found, and needs no key.
func TestSetupLocal(t *testing.T) {
	t.Parallel()
	n := newSetupHome(t)
	n.withoutAPI("TELEGRAM", "DISCORD", "WHATSAPP")
	n.model.SetModels("nomic-embed-text", "qwen3:8b")
	n.env = append(n.env, "OLLAMA_HOST="+strings.TrimSuffix(n.model.URL, "/v1"))
	// The questions: provider, model, Telegram, Discord, WhatsApp, time zone, and whether to write.
	out, err := n.gateway(strings.Repeat("\n", 7), nil, "setup")
	if err != nil || !strings.Contains(out, "runs on this machine: qwen3:8b") {
		t.Fatalf("%v\n%s", err, out)
	}
	n.isClean()
	if out, err = n.gateway("", nil, "chat", "-m", "hello"); err != nil ||
		!strings.Contains(out, "echo: ") {
		t.Errorf("the chat: %v\n%s", err, out)
	}
	info, err := os.Stat(n.home)
	if err != nil || info.Mode() != fs.ModeDir|0o700 {
		t.Errorf("the home is %v, %v", info, err)
	}
}

// TestSetupDemo checks that the demo answers after somebody has chosen it, also in place of another
// model or of a server on this machine. A missing server is not called an unknown provider.
func TestSetupDemo(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]string{"server": "",
		"model": "[models.old]\nmodel = \"m\"\nbase_url = \"http://127.0.0.1:1/v1\"\n"} {
		t.Run(name, func(t *testing.T) {
			n := newSetupHome(t)
			n.withoutAPI("TELEGRAM", "DISCORD", "WHATSAPP")
			out, err := n.gateway("", []string{"OLLAMA_HOST=127.0.0.1:1"}, "setup", "--no-input",
				"--provider", "ollama")
			if err == nil || !strings.Contains(out, "ollama: no server of it answers") {
				t.Errorf("without a server: %v\n%s", err, out)
			}
			n.model.SetModels("qwen3:8b")
			n.env = append(n.env, "OLLAMA_HOST="+strings.TrimSuffix(n.model.URL, "/v1"))
			writeFile(t, filepath.Join(n.home, "config.toml"), []byte(before))
			if out, err = n.gateway("", nil, "setup", "--no-input", "--provider", "demo"); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			out, err = n.gateway("", nil, "chat", "-m", "hello")
			if err != nil || !strings.Contains(out, "I am the demo model") {
				t.Errorf("the chat: %v\n%s", err, out)
			}
		})
	}
}
