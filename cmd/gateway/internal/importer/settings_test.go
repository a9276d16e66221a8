package importer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gateway/cmd/gateway/internal/config"
	"gateway/session"
)

// What is made of a configuration is one that the gateway takes, with no secret in it.
func TestSettings(t *testing.T) {
	for _, c := range []struct {
		name, config string
		want         []string // lines
		not          string
	}{
		{"nanobot", `{"agents":{"defaults":{"model":"anthropic/claude-opus-4-5","provider":"auto"}},
			"providers":{"openrouter":{"apiKey":"SECRET"}},
			"channels":{"sendProgress":true,
			"telegram":{"enabled":true,"token":"SECRET","allowFrom":["42|anna","@bob",7]},
			"discord":{"enabled":true,"token":"SECRET","allow_from":["*"],"groupPolicy":"open"},
			"whatsapp":{"enabled":true,"allowFrom":["49123456","9988776655@lid"]},
			"slack":{"enabled":true,"botToken":"SECRET"},"qq":{"enabled":false}}}`,
			[]string{
				"[channels.telegram]", `token = "env:TELEGRAM_BOT_TOKEN"`, `access = "allow"`,
				`allow = ["42", "7"]`, "# No ids, so that they are left out: @bob",
				"[channels.discord]", `access = "pairing"`, `activation = "always"`,
				`allow = ["+49123456", "9988776655@lid"]`,
				"# There are no such channels here: slack",
				`model = "openrouter"`, `model = "anthropic/claude-opus-4-5"`,
				`key = "env:OPENROUTER_API_KEY"`,
			}, "owners"},
		{"one person", `{"channels":{"telegram":{"enabled":true,"token":"SECRET",
			"allow_from":"42"}}}`,
			[]string{`allow = ["42"]`, `owners = ["42"]`}, "[agent]"},
		{"picoclaw", `{"version":2,"agents":{"defaults":{"model_name":"gpt4"}},
			"model_list":[{"model_name":"gpt4","model":"openai/gpt-5.2","api_key":"SECRET"}],
			"channels":{"telegram":{"enabled":false,"token":"SECRET"}},"channel_list":{}}`,
			[]string{`model = "openai"`, "[models.openai]", `model = "gpt-5.2"`,
				`key = "env:OPENAI_API_KEY"`},
			"[channels."},
		{"own server", `{"agents":{"defaults":{"model":"vllm/llama","provider":"vllm"}},
			"providers":{"vllm":{"apiBase":"http://127.0.0.1:8000/v1"}}}`,
			[]string{"[models.vllm]", `model = "llama"`, `base_url = "http://127.0.0.1:8000/v1"`},
			"key ="},
		{"secret URL", `{"agents":{"defaults":{"model":"vllm/llama","provider":"vllm"}},
			"providers":{"vllm":{"apiBase":"http://me:SECRET@127.0.0.1:8000/v1"}}}`,
			[]string{"# The model was llama. Add it with its URL: [models.vllm]"}, "127.0.0.1"},
		{"control characters", `{"agents":{"defaults":{"model":"a\u007f/b\u0000"}},
			"channels":{"telegram":{"enabled":true,"allowFrom":["a\u001b\u007f\u0000"],
			"groupAllowFrom":["-1\u007f"]}}}`,
			[]string{"# No ids, so that they are left out: a", `groups = ["-1\u007f"]`}, "SECRET"},
		{"unknown", `{"agents":{"defaults":{"model":"moon/shot\nkey = 1"}}}`,
			[]string{"# The model was shot key = 1. Add it with its URL: [models.moon]"},
			"[agent]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t)
			d.write("config.json", c.config)
			s, err := Open(Nanobot, d.home)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			text, err := s.Settings()
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range c.want {
				if !strings.Contains("\n"+text, "\n"+line+"\n") {
					t.Errorf("there is no line %q in\n%s", line, text)
				}
			}
			if strings.Contains(text, "SECRET") || strings.Contains(text, c.not) {
				t.Errorf("there is a secret, or %q, in\n%s", c.not, text)
			}
			file := filepath.Join(d.here, "config.toml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			env := []string{"HOME=" + d.here, "GATEWAY_HOME=" + d.here}
			for _, name := range []string{"TELEGRAM_BOT_TOKEN", "DISCORD_BOT_TOKEN",
				"OPENROUTER_API_KEY", "OPENAI_API_KEY"} {
				env = append(env, name+"="+name+"-0123456789")
			}
			if _, err := config.Load(file, env); err != nil {
				t.Errorf("the gateway does not take it: %v\n%s", err, text)
			}
		})
	}
}

// A large session streams: what is kept of it is one line at a time.
func TestLargeSession(t *testing.T) {
	d := newDesk(t)
	path := filepath.Join(d.home, "workspace", "sessions", "telegram_42.jsonl")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	const messages = 500
	text := strings.Repeat("word ", 1_000)
	for i := range messages {
		fmt.Fprintf(f, "{\"role\":\"user\",\"content\":\"%d %s\"}\n", i, text)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	d.want(Nanobot, "new session workspace/sessions/telegram_42.jsonl > telegram/42: 500 messages")
	info, err := session.Store{}.Info(d.target.DB.Read(t.Context()), "telegram/42")
	if err != nil || info.Messages != messages {
		t.Errorf("%d messages, %v, want %d", info.Messages, err, messages)
	}
}

// Whatever the file, reading ends, and each message that is kept is one that a transcript takes.
func FuzzReadSession(f *testing.F) {
	f.Add(`{"_type":"metadata","key":"a:b","created_at":"2026-02-03T10:00:00"}` + "\n" +
		`{"role":"user","content":[{"type":"text","text":"x"}],"media":["/a/b.png"]}`)
	f.Add(`{"role":"assistant","content":null,"tool_calls":[{"id":"1","name":"x","arguments":{}}]}`)
	f.Add("{}\n")
	f.Fuzz(func(t *testing.T, text string) {
		head, lines, err := ReadSession(strings.NewReader(text), time.UTC)
		if err == nil {
			_, _, err = Survey(head, lines, now)
		}
		if err != nil {
			if _, ok := errors.AsType[*session.LineError](err); !ok || errors.Is(err, io.EOF) {
				t.Errorf("reading ended with %v, want a LineError", err)
			}
			return
		}
		_, lines, err = ReadSession(strings.NewReader(text), time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		for line, err := range Spoken(lines, now) {
			if err != nil {
				t.Fatal(err)
			}
			if err := session.CheckMessage(line.Message); err != nil || line.Time.IsZero() {
				t.Errorf("%+v is kept: %v", line, err)
			}
		}
	})
}
