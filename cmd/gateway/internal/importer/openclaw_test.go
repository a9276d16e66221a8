package importer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gateway/session"
)

// clawTranscript returns a session of OpenClaw with a tool call, a compaction and an abandoned
// branch.
func clawTranscript(said string) string {
	return strings.Join([]string{
		`{"type":"session","version":3,"id":"s","timestamp":"2026-11-01T08:00:00.000Z","cwd":"/x"}`,
		`{"type":"model_change","id":"00","parentId":null,"provider":"p","modelId":"m"}`,
		`{"type":"message","id":"01","parentId":"00","timestamp":"2026-11-01T08:00:01Z",` +
			`"message":{"role":"user","content":"the old question"}}`,
		`{"type":"message","id":"02","parentId":"01","timestamp":"2026-11-01T08:00:02Z","message":` +
			`{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},` +
			`{"type":"toolCall","id":"c1","name":"read","arguments":{"path":"a"}}]}}`,
		`{"type":"message","id":"03","parentId":"02","timestamp":"2026-11-01T08:00:03Z","message":` +
			`{"role":"toolResult","toolCallId":"c1","content":[{"type":"text","text":"seven"}]}}`,
		`{"type":"message","id":"04","parentId":"03","timestamp":"2026-11-01T08:00:04Z",` +
			`"message":{"role":"assistant","content":[{"type":"text","text":"abandoned"}]}}`,
		`{"type":"message","id":"05","parentId":"03","timestamp":"2026-11-01T08:00:05Z",` +
			`"message":{"role":"assistant","content":[{"type":"text","text":"It is seven."}]}}`,
		`{"type":"compaction","id":"06","parentId":"05","timestamp":"2026-11-01T08:00:06Z",` +
			`"summary":"They counted.","firstKeptEntryId":"05","tokensBefore":9}`,
		`{"type":"message","id":"07","parentId":"06","timestamp":"2026-11-01T08:00:07Z","message":` +
			`{"role":"user","content":[{"type":"text","text":"` + said + `"},{"type":"image","data":""}]}}`,
		`{"type":"custom","customType":"x","id":"08","parentId":"07","data":{}}`,
	}, "\n") + "\n"
}

func TestOpenClaw(t *testing.T) {
	d := newDesk(t)
	d.write(
		"openclaw.json", `// my settings
{
	agents: { defaults: { model: { primary: 'anthropic/claude-x' }, // the good one
		userTimezone: "Europe/Vienna", }, },
	"channels": { telegram: { botToken: 'SECRET' }, signal: {}, },
	/* servers */ mcp: { servers: { notes: { command: "x", env: { KEY: "SECRET" } } } },
	timeout: +0x1F,
}`,
		"workspace/AGENTS.md", "Be kind.",
		"workspace/USER.md", "Anna",
		"workspace/MEMORY.md", "The dog is Bello.",
		"workspace/memory/2026-11-02.md", "Went to Rome.",
		"agents/main/sessions/sessions.json", `{
			"agent:main:main":{"sessionId":"a1"},
			"agent:main:telegram:group:-100":{"sessionId":"b2",
				"sessionFile":"/home/x/.openclaw/agents/main/sessions/b2.jsonl"},
			"agent:main:telegram:work:direct:43":{"sessionId":"c3"},
			"agent:main:discord:direct:9":{"sessionId":"c3"},
			"agent:main:slack:channel:C1":{"sessionId":"c3"},
			"agent:main:subagent:1":{"sessionId":"c3"},
			"agent:main:cron:1":{"sessionId":"gone"},
			"hook:1":{"sessionId":"c3"}}`,
		"agents/main/sessions/a1.jsonl", clawTranscript("hello from Anna"),
		"agents/main/sessions/b2.jsonl", clawTranscript("hello from the group"),
		"agents/main/sessions/c3.jsonl", clawTranscript("hello from Bob"),
		"agents/work/agent/openclaw-agent.sqlite", "SQLite",
		"cron/jobs.json", `{"version":1,"jobs":[
			{"name":"brief","enabled":true,"schedule":{"kind":"cron","expr":"0 7 * * *","tz":"UTC"},
				"payload":{"kind":"agentTurn","message":"Tell me the news"},
				"delivery":{"mode":"announce","channel":"telegram","to":"telegram:42"}},
			{"name":"call","schedule":{"kind":"at","at":"2026-12-01T09:00:00Z"},
				"payload":{"kind":"systemEvent","text":"Reminder: call mum"},"sessionTarget":"main"}]}`)
	d.want(OpenClaw,
		`left setting agents.defaults.model > : here: [models.main] model = "claude-x", with its key`,
		`left setting agents.defaults.userTimezone > : here: [gateway] timezone = "Europe/Vienna"`,
		"left setting channels.telegram > : here: [channels.telegram], with a token of its own or "+
			"gateway pair; people let themselves in",
		"left setting mcp.servers.notes > : here: [mcp.notes]",
		"new document workspace/MEMORY.md > person-1/MEMORY.md: 17 bytes",
		"new document workspace/USER.md > person-1/USER.md: 4 bytes",
		"new document workspace/AGENTS.md > shared/AGENTS.md: 8 bytes",
		"new history workspace/memory/2026-11-02.md > person-1/history.jsonl: 1 entries of 1",
		"left session agents/main/sessions/gone.jsonl > : its transcript is not there",
		"left session agents/main/sessions/c3.jsonl > : which chat this person has here is not "+
			"known: gateway sessions import FILE --as SESSION gives it one",
		"new session agents/main/sessions/a1.jsonl > telegram/42: 5 messages",
		`left session agents/main/sessions/c3.jsonl > : there is no channel "slack" here`,
		"left session agents/main/sessions/c3.jsonl > : it names no chat: it is of a sub-agent, a "+
			"job or several chats",
		"new session agents/main/sessions/b2.jsonl > telegram/-100: 5 messages",
		"new session agents/main/sessions/c3.jsonl > telegram/43: 5 messages",
		"left session agents/main/sessions/c3.jsonl > : it belongs to a job or a program, and to "+
			"no chat",
		"failed session agents/work/agent/openclaw-agent.sqlite > : file is not a database (26)",
		"new job cron/jobs.json, job 1 brief > telegram/42: at 0 7 * * * (UTC)",
		"new job cron/jobs.json, job 2 call > telegram/42: once, 2026-12-01 09:00 UTC",
	)
	want := "assistant: It is seven.|user: hello from Anna\n[image]"
	if s := d.prompt("telegram/42"); s != want {
		t.Errorf("the prompt has %q, want %q", s, want)
	}
	summary, err := session.Store{}.Summary(d.target.DB.Read(t.Context()), named("telegram/42"))
	if err != nil || summary.Text != "They counted." {
		t.Errorf("the notes are %q, %v", summary.Text, err)
	}
}

// TestOpenClawHostile checks that a damaged or hostile home fails item by item, and reaches
// nothing outside of the home.
func TestOpenClawHostile(t *testing.T) {
	d := newDesk(t)
	outside := filepath.Join(t.TempDir(), "outside.jsonl")
	if err := os.WriteFile(outside, []byte(clawTranscript("stolen")), 0o600); err != nil {
		t.Fatal(err)
	}
	circle := `{"type":"session","id":"s","timestamp":"2026-11-01T08:00:00Z"}
{"type":"message","id":"1","parentId":"2","message":{"role":"user","content":"round"}}
{"type":"compaction","id":"2","parentId":"1","summary":"s","firstKeptEntryId":"1"}
{"type":"leaf","targetId":"2"}
`
	d.write(
		"openclaw.json", "{ // comments\n agents: {",
		"agents/main/sessions/sessions.json", fmt.Sprintf(`{
			"agent:main:telegram:direct:1":{"sessionFile":%q},
			"agent:main:telegram:direct:2":{"sessionId":"../../../outside"},
			"agent:main:telegram:direct:3":{"sessionId":"link"},
			"agent:main:telegram:direct:4":{"sessionId":"circle"},
			"agent:main:telegram:direct:5":{"sessionId":"cut"},
			"agent:main:telegram:direct:6/7/8":{"sessionId":"circle"},
			"agent:main:telegram:direct:9":{"sessionId":".."}}`, outside),
		"agents/main/sessions/circle.jsonl", circle,
		"agents/main/sessions/cut.jsonl", clawTranscript("cut")[:900],
		"agents/broken/sessions/sessions.json", `{"agent:broken:main":[]}`)
	link := filepath.Join(d.home, "agents", "main", "sessions", "link.jsonl")
	if err := os.Symlink(outside, link); err != nil {
		t.Skip("links are not supported")
	}
	got := strings.Join(d.move(OpenClaw, false), "\n")
	for _, want := range []string{
		"left setting openclaw.json > : it is no JSON5",
		"failed session agents/broken/sessions/sessions.json > : agent:broken:main: want an object",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the import said\n%s\nwithout %q", got, want)
		}
	}
	for _, never := range []string{"telegram/1:", "telegram/2:", "telegram/3:", "telegram/9:"} {
		if strings.Contains(got, never) {
			t.Errorf("the import said\n%s\nwith %q", got, never)
		}
	}
}

// TestJSON5 checks the bounds of settings in JSON5, and what they may not have.
func TestJSON5(t *testing.T) {
	for _, bad := range []string{"", "{a", "[]", "{a: NaN}", "{a: -Infinity}", "{a: 1} 2", "{'a': '",
		strings.Repeat("[", maxNesting+1), "{a: '" + strings.Repeat("x", maxJSON5) + "'}"} {
		if o, err := parseJSON5([]byte(bad)); err == nil {
			t.Errorf("%.20q is %v", bad, o)
		}
	}
	deep := "{a: " + strings.Repeat("[", maxNesting-1) + strings.Repeat("]", maxNesting-1) + "}"
	if _, err := parseJSON5([]byte(deep)); err != nil {
		t.Errorf("lists within lists, up to the bound: %v", err)
	}
}

func FuzzJSON5(f *testing.F) {
	f.Add(`{a: 'b', /* c */ "d": [+0x1F, .5, -1e3,], // e` + "\n}")
	f.Fuzz(func(_ *testing.T, text string) {
		_, _ = parseJSON5([]byte(text)) // it must not panic
	})
}
