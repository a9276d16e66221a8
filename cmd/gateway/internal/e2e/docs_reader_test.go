//go:build unix

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"gateway/channels/discord/discordtest"
	"gateway/channels/telegram/telegramtest"
)

// prepare does the manual steps that the text asks for before a block.
func (p *docPage) prepare(block string) {
	for _, step := range []struct {
		block *regexp.Regexp
		do    func(*docPage)
	}{
		{regexp.MustCompile(`gateway (sessions import|import|restore) `), (*docPage).stop},
		{regexp.MustCompile(`gateway (health|memory log|sessions list)|curl `), (*docPage).start},
		{regexp.MustCompile(`gateway channels`), (*docPage).noticed},
	} {
		if step.block.MatchString(block) {
			step.do(p)
		}
	}
}

// noticed waits until the states of the accounts are in the database. A person would need more
// time than that for the next command.
func (p *docPage) noticed() {
	p.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		if out, err := p.run("channels"); err != nil || !strings.Contains(out, "  starting") {
			return // the block itself will show an error
		}
		if time.Now().After(deadline) {
			p.t.Fatal("the accounts stay as they are at the start")
		}
	}
}

// fillIn replaces example values by the values of this machine.
func (p *docPage) fillIn(text string) string {
	p.t.Helper()
	for _, example := range []struct {
		pattern string
		value   func() string
	}{
		{`export TELEGRAM_BOT_TOKEN=.*`, func() string {
			return "export TELEGRAM_BOT_TOKEN=" + testToken +
				" GATEWAY_CHANNELS__TELEGRAM__API_URL=" + p.urls["telegram"]
		}},
		{`export DISCORD_BOT_TOKEN=.*`, func() string {
			return "export DISCORD_BOT_TOKEN=" + discordToken +
				" GATEWAY_CHANNELS__DISCORD__API_URL=" + p.urls["discord"]
		}},
		{`export OPENAI_API_KEY=.*`, func() string {
			return "export OPENAI_API_KEY=key OPENAI_BASE_URL=" + p.urls["model"]
		}},
		{`http://127\.0\.0\.1:11434/v1`, func() string { return p.urls["model"] }},
		{`(?m)^\[channels\.whatsapp\]$`, func() string {
			return fmt.Sprintf("[channels.whatsapp]\napi_url = %q", p.urls["whatsapp"])
		}},
		{`(?m)^\[channels\.telegram\]\ntoken = .*$`, func() string {
			return fmt.Sprintf("[channels.telegram]\ntoken = %q\napi_url = %q", testToken,
				p.urls["telegram"])
		}},
		{`127\.0\.0\.1:8790`, p.address},
		{`\bCODE\b`, p.stranger},
		{`\bundeny ACCOUNT ID\b`, func() string { return fmt.Sprint("undeny telegram ", p.newcomer) }},
		{`to = "telegram/123456789"`, func() string { return `to = "telegram/42"` }},
		{`\+4915112345678`, func() string { return "+" + p.whatsapp.BotPhone() }},
		{`\bOTHER\b`, func() string { return p.newPerson() }},
		{`\bPERSON\b`, func() string { return "1" }},
		{`\bVERSION\b`, func() string {
			lines := strings.Split(p.must("memory", "log", "person-1"), "\n")
			return strings.Fields(lines[len(lines)-2])[0]
		}},
	} {
		text = regexp.MustCompile(example.pattern).ReplaceAllStringFunc(text,
			func(string) string { return example.value() })
	}
	return text
}

// address returns the address on which the gateway's server listens.
func (p *docPage) address() string {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join(p.home, ".gateway", "http.json"))
	if err != nil {
		p.t.Fatal(err)
	}
	found := regexp.MustCompile(`127\.0\.0\.1:\d+`).Find(data)
	if found == nil {
		p.t.Fatalf("http.json has no address: %s", data)
	}
	return string(found)
}

var docPhoneCode = regexp.MustCompile(`Type this into the phone, .*: (\S+)\n`)

var docPairing = regexp.MustCompile(`pairing code is \W*([A-Z2-7]{8})\b`)

// stranger makes a new person write to the bot, and returns the pairing code that they get.
func (p *docPage) stranger() string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	var code string
	name := [...]string{"Ann", "Bob", "Cem", "Dora", "Emil"}[p.strangers%5]
	p.newcomer++
	p.strangers++
	if strings.Contains(p.t.Name(), "discord") { // the gateway may just have started
		if p.discord.Wait(ctx, func() bool { return p.discord.Connected() > 0 }) != nil {
			p.t.Fatal("the gateway does not connect to Discord")
		}
	}
	if p.discord.Connected() > 0 {
		user, chat := fmt.Sprint(p.newcomer), fmt.Sprint(100_000+p.newcomer)
		p.discord.AddUser(discordtest.User{ID: user, Username: strings.ToLower(name), Name: name})
		p.discord.AddDM(user, chat)
		p.discord.Say(chat, user, "hello")
		if err := p.discord.Wait(ctx, func() bool {
			for _, m := range p.discord.History(chat) {
				if found := docPairing.FindStringSubmatch(m.Text); found != nil {
					code = found[1]
				}
			}
			return code != ""
		}); err != nil {
			p.t.Fatalf("waited for a code on Discord: %v", err)
		}
		return code
	}
	p.telegram.AddUser(telegramtest.User{ID: p.newcomer, First: name})
	p.telegram.Say(p.newcomer, p.newcomer, "hello")
	if err := p.telegram.Wait(ctx, func() bool {
		for _, m := range p.telegram.History(p.newcomer) {
			if found := docPairing.FindStringSubmatch(m.Text); found != nil {
				code = found[1]
			}
		}
		return code != ""
	}); err != nil {
		p.t.Fatalf("waited for a code on Telegram: %v", err)
	}
	return code
}

// newPerson makes an owner approve a stranger, and returns the person's number.
func (p *docPage) newPerson() string {
	p.t.Helper()
	p.must("people", "approve", p.stranger())
	for line := range strings.Lines(p.must("people", "list")) {
		words := strings.Fields(line)
		if strings.Contains(line, fmt.Sprintf(" %d ", p.newcomer)) {
			return words[0]
		}
	}
	p.t.Fatalf("nobody was let in as %d", p.newcomer)
	return ""
}

// settledConfig is the configuration of a gateway that is already in use.
const settledConfig = `[channels.telegram]
token = "file:telegram-token"
api_url = %q
groups = [-42]

[models.main]
model = "gpt-5.4-mini"
key = "file:openai-key"
base_url = %q
`

// settle creates the home of a person who has used the gateway for a while. Ann, whose id is 42,
// has written in her direct chat and in a group, and has edited a document. The gateway is
// running.
func (p *docPage) settle() {
	p.t.Helper()
	dir := filepath.Join(p.home, ".gateway")
	writeFile(p.t, filepath.Join(dir, "config.toml"), fmt.Appendf(nil, settledConfig,
		p.urls["telegram"], p.urls["model"]))
	writeFile(p.t, filepath.Join(dir, "telegram-token"), []byte(testToken))
	writeFile(p.t, filepath.Join(dir, "openai-key"), []byte("key"))
	p.telegram.AddGroup(-42, "Family")
	p.start()
	p.newcomer = 41
	p.must("people", "approve", p.stranger())
	p.newcomer = 1000
	p.ask(42, "when is my violin lesson?", "violin")
	p.ask(42, `DO write_file {"path":"memory/MEMORY.md","content":"Plays the violin."}`, "tools said")
	p.ask(-42, "@gateway_bot what is for dinner?", "dinner")
	writeFile(p.t, filepath.Join(dir, "memory/person-1/skills/lunch/SKILL.md"),
		[]byte("---\nname: lunch\ndescription: Order lunch.\n---\nAsk who wants some.\n"))
	writeFile(p.t, filepath.Join(p.home, "downloads/tea/SKILL.md"),
		[]byte("---\nname: tea\ndescription: Brew tea.\n---\nBlack tea steeps for 4 minutes.\n"))
	writeFile(p.t, filepath.Join(p.home, ".nanobot/workspace/memory/MEMORY.md"),
		[]byte("Has a dog called Bello.\n"))
	writeFile(p.t, filepath.Join(p.home, ".nanobot/workspace/skills/tea/SKILL.md"),
		[]byte("---\nname: tea\ndescription: Brew tea.\n---\nBlack tea steeps for 4 minutes.\n"))
	writeFile(p.t, filepath.Join(p.home, ".nanobot/workspace/notes/a.md"), []byte("A note.\n"))
	writeFile(p.t, filepath.Join(p.home, ".nanobot/config.json"), []byte(`{"channels":
		{"telegram":{"enabled":true,"token":"`+testToken+`","allowFrom":["42"]}}}`))
	writeFile(p.t, filepath.Join(p.home, ".picoclaw/workspace/memory/MEMORY.md"),
		[]byte("Has a parrot called Coco.\n"))
	writeFile(p.t, filepath.Join(p.home, ".picoclaw/config.json"), []byte("{}"))
	writeFile(p.t, filepath.Join(p.home, ".openclaw/workspace/USER.md"), []byte("Anna\n"))
}

// ask makes Ann write in a chat and waits for an answer that contains a word.
func (p *docPage) ask(chat int64, text, word string) {
	p.t.Helper()
	id := p.telegram.Say(chat, 42, text)
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	if err := p.telegram.Wait(ctx, func() bool {
		for _, m := range p.telegram.History(chat) {
			if m.ID != id && strings.Contains(m.Text, word) {
				return true
			}
		}
		return false
	}); err != nil {
		p.t.Fatalf("waited for an answer to %q: %v", text, err)
	}
}

// link types the code of "gateway pair --phone" into the phone as soon as the shell shows it.
func (p *docPage) link(s *docShell) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for p.t.Context().Err() == nil {
		data, _ := os.ReadFile(s.output) // the file exists as long as the test runs
		if found := docPhoneCode.FindSubmatch(data); found != nil {
			if err := p.whatsapp.EnterCode(string(found[1])); err != nil {
				p.t.Error(err)
			}
			return
		}
		<-tick.C
	}
}

// start starts the gateway as a service if it is not running.
func (p *docPage) start() {
	p.t.Helper()
	if p.gateway != nil {
		return
	}
	p.gateway = exec.Command(filepath.Join(p.path, "gateway"))
	p.gateway.Env = p.environ()
	if err := p.gateway.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.ready()
}

// stop stops the service if it is running.
func (p *docPage) stop() {
	if p.gateway == nil {
		return
	}
	_ = p.gateway.Process.Signal(syscall.SIGTERM) // the gateway may have ended already
	if err := p.gateway.Wait(); err != nil {
		p.t.Errorf("the gateway ended: %v", err)
	}
	p.gateway = nil
}
