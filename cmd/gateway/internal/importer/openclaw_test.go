package importer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"gateway/bus"
	"gateway/channels/gate"
	"gateway/session"
	"gateway/store"
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
	d := newFixture(t)
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
		"workspace/HEARTBEAT.md", "## Mail\n- look at the inbox\n",
		"workspace/MEMORY.md", "The dog is Bello.",
		"workspace/memory/2026-11-02.md", "Went to Rome.",
		"workspace/memory/2026-11-02-trip-to-rome.md", "# Session: 2026-11-02\n\nRome is old.",
		"workspace/memory/20261502-x.md", "These are no notes of a day.",
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
			"gateway pair; people have to ask for access again",
		"left setting mcp.servers.notes > : here: [mcp.notes]",
		"new document workspace/MEMORY.md > person-1/MEMORY.md: 17 bytes",
		"new document workspace/USER.md > person-1/USER.md: 4 bytes",
		"new document workspace/HEARTBEAT.md > person-1/HEARTBEAT.md: 28 bytes; the agent checks "+
			"only open items (- [ ] …), and it has none: add the marks",
		"new document workspace/AGENTS.md > shared/AGENTS.md: 8 bytes",
		"new history workspace/memory/2026-11-02-trip-to-rome.md > person-1/history.jsonl: "+
			"1 entries of 1",
		"new history workspace/memory/2026-11-02.md > person-1/history.jsonl: 1 entries of 1",
		"left session agents/main/sessions/gone.jsonl > : its transcript is missing",
		"left session agents/main/sessions/c3.jsonl > : this person's chat here is not known "+
			"yet: --as agent:main:discord:direct:9=ACCOUNT/CHAT imports it",
		"new session agents/main/sessions/a1.jsonl > telegram/42: 5 messages",
		`left session agents/main/sessions/c3.jsonl > : the gateway has no channel "slack"`,
		"left session agents/main/sessions/c3.jsonl > : it belongs to a sub-agent, a job or "+
			"several chats, not to one chat",
		"new session agents/main/sessions/b2.jsonl > telegram/-100: 5 messages",
		"new session agents/main/sessions/c3.jsonl > telegram/43: 5 messages",
		"left session agents/main/sessions/c3.jsonl > : it belongs to a job or a program, not to "+
			"a chat",
		"failed session agents/work/agent/openclaw-agent.sqlite > : file is not a database (26)",
		"new job cron/jobs.json, job 1 brief > telegram/42: at 0 7 * * * (UTC)",
		"new job cron/jobs.json, job 2 call > telegram/42: once, 2026-12-01 09:00 UTC",
	)
	want := "assistant: It is seven.|user: hello from Anna\n[image]"
	if s := d.prompt("telegram/42"); s != want {
		t.Errorf("the prompt has %q, want %q", s, want)
	}
	summary, err := session.ReadSummary(d.target.DB.Read(t.Context()), named("telegram/42"))
	if err != nil || summary.Text != "They counted." {
		t.Errorf("the notes are %q, %v", summary.Text, err)
	}
}

// TestOpenClawHostile checks that only the bad items of a damaged or hostile home fail, and that
// the import reads nothing outside of the home.
func TestOpenClawHostile(t *testing.T) {
	d := newFixture(t)
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
	got := strings.Join(d.run(OpenClaw, false), "\n")
	for _, want := range []string{
		"left setting openclaw.json > : it is not JSON5: ",
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

// TestJSON5 checks the limits of settings in JSON5, and what settings may not contain.
func TestJSON5(t *testing.T) {
	for _, bad := range []string{"", "{a", "[]", "{a: NaN}", "{a: -Infinity}", "{a: 1} 2", "{'a': '",
		strings.Repeat("[", maxNesting+1), "{a: '" + strings.Repeat("x", maxJSON5) + "'}"} {
		v, err := parseJSON5([]byte(bad))
		if err == nil {
			_, err = objectOf(v)
		}
		if err == nil {
			t.Errorf("%.20q is %v", bad, v)
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

// TestOpenClawIncludes checks that settings in several files are merged as OpenClaw merges them.
// No include reads a file outside of the home, and includes in a circle end.
func TestOpenClawIncludes(t *testing.T) {
	d := newFixture(t)
	outside := filepath.Join(t.TempDir(), "outside.json5")
	if err := os.WriteFile(outside, []byte("{secret: 1}"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.write(
		"openclaw.json", `{
			agents: { $include: "./parts/agents.json5", defaults: { userTimezone: "UTC" } },
			channels: { $include: ["parts/a.json5", "parts/b.json5"], discord: { enabled: false } },
			list: { $include: "parts/list.json5" },
			mcp: { $include: "`+filepath.ToSlash(filepath.Join(d.home, "mcp.json5"))+`" },
			one: { $include: "../outside.json5" },
			two: { $include: "`+filepath.ToSlash(outside)+`" },
			three: { $include: "circle.json5" },
			four: { $include: [7] },
			five: { $include: "missing.json5" },
			six: { $include: "parts/list.json5", and: "more" },
			seven: { $include: "deep0.json5" },
			eight: { $include: "huge.json5" },
			nine: { $include: "link.json5" },
			ten: { $include: "broken.json5" },
		}`,
		"parts/agents.json5", `{ defaults: { $include: "../model.json5", userTimezone: "Mars" } }`,
		"model.json5", `{ model: "from-a-file" }`,
		"parts/a.json5", `{ telegram: { enabled: false }, discord: {}, whatsapp: {} }`,
		"parts/b.json5", `{ telegram: { enabled: true } }`,
		"parts/list.json5", `[1, 2]`,
		"mcp.json5", `{ servers: { notes: {} } }`,
		"circle.json5", `{ again: { $include: "circle.json5" } }`,
		"broken.json5", `{`,
		"huge.json5", "'"+strings.Repeat("x", maxJSON5)+"'")
	for i := range 12 {
		d.write(fmt.Sprintf("deep%d.json5", i), fmt.Sprintf(`{ $include: "deep%d.json5" }`, i+1))
	}
	if err := os.Symlink(outside, filepath.Join(d.home, "link.json5")); err != nil {
		t.Skip("links are not supported")
	}
	const byHand = "; copy these settings by hand"
	leave := func(file, name, why string) string {
		return "left setting " + file + " > : $include " + fmt.Sprintf("%q", name) + ": " + why + byHand
	}
	got := d.run(OpenClaw, false)
	for _, want := range []string{
		leave("openclaw.json", "../outside.json5", "the path leads out of OpenClaw's home"),
		leave("openclaw.json", filepath.ToSlash(outside), "the path leads out of OpenClaw's home"),
		leave("circle.json5", "circle.json5",
			"the files include each other: openclaw.json → circle.json5 → circle.json5"),
		leave("openclaw.json", "7", "want the name of a file, or a list of names"),
		leave("openclaw.json", "missing.json5", "no such file or directory"),
		leave("openclaw.json", "parts/list.json5", "the object around it has other keys, so the file "+
			"must contain an object"),
		leave("deep9.json5", "deep10.json5", "more than 10 levels of files include each other"),
		leave("openclaw.json", "huge.json5", "it has more than 1048576 bytes"),
		leave("openclaw.json", "link.json5", errLink.Error()),
		leave("openclaw.json", "broken.json5", "it is not JSON5: unexpected end of JSON input"),
		`left setting agents.defaults.model > : here: [models.main] model = "from-a-file", with its key`,
		`left setting agents.defaults.userTimezone > : here: [gateway] timezone = "UTC"`,
		"left setting channels.telegram > : here: [channels.telegram], with a token of its own or " +
			"gateway pair; people have to ask for access again",
		"left setting channels.whatsapp > : here: [channels.whatsapp], with a token of its own or " +
			"gateway pair; people have to ask for access again",
		"left setting mcp.servers.notes > : here: [mcp.notes]",
	} {
		i := slices.Index(got, want)
		if i < 0 {
			t.Errorf("the import did not report %q", want)
			continue
		}
		got = slices.Delete(got, i, i+1)
	}
	if len(got) > 0 {
		t.Errorf("the import also reported\n%s", strings.Join(got, "\n"))
	}
}

// TestOpenClawNotANumber checks that includes which failed are reported even if a setting can't
// be expressed in JSON.
func TestOpenClawNotANumber(t *testing.T) {
	d := newFixture(t)
	d.write("openclaw.json", `{ one: { $include: "missing.json5" }, two: -Infinity }`,
		"workspace/other.txt", "")
	got := d.run(OpenClaw, false)
	want := []string{
		`left setting openclaw.json > : $include "missing.json5": no such file or directory; ` +
			"copy these settings by hand",
		"left setting openclaw.json > : json: unsupported value: -Inf; copy its settings by hand",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the import reported %q, want %q", got, want)
	}
}

// TestOpenClawArchive checks that sessions which OpenClaw has reset, deleted or replaced become the
// older part of their conversations.
func TestOpenClawArchive(t *testing.T) {
	d := newFixture(t)
	old := func(day int, said string) string {
		return strings.ReplaceAll(clawTranscript(said), "2026-11-01", fmt.Sprintf("2026-10-%02d", day))
	}
	var packed bytes.Buffer
	z, err := zstd.NewWriter(&packed)
	if err == nil {
		_, err = z.Write([]byte(old(2, "compressed")))
		err = errors.Join(err, z.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	const dir, at = "agents/main/sessions/", ".2026-10-09T08-00-00.000Z"
	d.write(
		dir+"sessions.json", `{
			"agent:main:main":{"sessionId":"now","usageFamilySessionIds":["b","a","now"]},
			"agent:main:telegram:group:-100":{"sessionId":"gone","usageFamilySessionIds":["g"]}}`,
		dir+"now.jsonl", clawTranscript("now"),
		dir+"now.jsonl.bak"+at, clawTranscript("a copy"),
		dir+"now.checkpoint.01234567-89ab-4cde-8f01-23456789abcd.jsonl", clawTranscript("a copy"),
		dir+"now.trajectory.jsonl", "{}",
		dir+"b.jsonl", old(3, "replaced"),
		dir+"a.jsonl.reset"+at+".zst", packed.String(),
		dir+"archive/g-topic-7.jsonl.deleted"+at, old(1, "in a group"),
		dir+"x.jsonl.deleted"+at, old(4, "chosen"),
		dir+"y.jsonl.reset"+at, old(5, "unknown"),
		dir+"z.jsonl.reset"+at+".zst", "not compressed")
	d.target.Chosen = map[string]bus.Address{
		"x": {Account: "telegram", Chat: "99"}, "z": {Account: "telegram", Chat: "98"}}
	d.want(OpenClaw,
		"left session "+dir+"gone.jsonl > : its transcript is missing",
		"new session "+dir+"a.jsonl.reset"+at+".zst > telegram/42: 5 messages, an old conversation",
		"new session "+dir+"b.jsonl > telegram/42: 5 messages, an old conversation",
		"new session "+dir+"now.jsonl > telegram/42: 5 messages",
		"left session "+dir+"y.jsonl.reset"+at+" > : OpenClaw does not say whose old session this is: "+
			"--as y=ACCOUNT/CHAT imports it into a conversation",
		"new session "+dir+"x.jsonl.deleted"+at+" > telegram/99: 5 messages, an old conversation",
		"failed session "+dir+"z.jsonl.reset"+at+".zst > : line 1: invalid input: magic number mismatch",
		"new session "+dir+"archive/g-topic-7.jsonl.deleted"+at+" > telegram/-100: 5 messages, an old "+
			"conversation",
	)
	const want = "assistant: It is seven.|user: now\n[image]"
	if got := d.prompt("telegram/42"); got != want {
		t.Errorf("the prompt has %q, want %q", got, want)
	}
	if got := d.prompt("telegram/99"); got != "" {
		t.Errorf("the prompt has %q of an old conversation", got)
	}
	all, err := session.ReadTranscriptAfter(d.target.DB.Read(t.Context()), named("telegram/42"), 0)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, e := range all.Entries {
		if text, ok := strings.CutSuffix(e.Message.Text, "\n[image]"); ok {
			said = append(said, text)
		}
	}
	if got := strings.Join(said, ", "); got != "compressed, replaced, now" {
		t.Errorf("the transcript has %q", got)
	}
}

// TestOpenClawDirect checks whose direct chats have a conversation here: known people, and phone
// numbers that the account can look up.
func TestOpenClawDirect(t *testing.T) {
	d := newFixture(t)
	const dir = "agents/main/sessions/"
	d.write(
		dir+"sessions.json", `{
			"agent:main:discord:direct:9":{"sessionId":"s"},
			"agent:main:discord:direct:10":{"sessionId":"s"},
			"agent:main:discord:direct:11":{"sessionId":"s"},
			"agent:main:direct:12":{"sessionId":"s"},
			"agent:main:whatsapp:direct:+4366012345":{"sessionId":"s"},
			"agent:main:whatsapp:direct:+4366099999":{"sessionId":"s"}}`,
		dir+"s.jsonl", clawTranscript("hello"))
	d.target.People = append(d.target.People, gate.Person{ID: 2, Name: "Bob", Account: "discord",
		Sender: "9"})
	err := d.target.DB.Tx(t.Context(), func(tx *store.Tx) error {
		_, err := bus.NewInbox().Put(tx, bus.InboundMessage{ID: "1", Person: 2, Text: "hello",
			From: bus.Address{Account: "discord", Chat: "777"}, Sender: bus.Sender{ID: "9"}}, now)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	d.target.Chosen = map[string]bus.Address{
		"agent:main:discord:direct:11": {Account: "discord", Chat: "888"}}
	d.target.Lookup = func(_ context.Context, account, person string) (string, error) {
		if account == "whatsapp" && person == "+4366012345" {
			return "5@lid", nil
		}
		return "", nil
	}
	d.want(OpenClaw,
		"left session "+dir+"s.jsonl > : it has one person's chats on all platforms: "+
			"--as agent:main:direct:12=ACCOUNT/CHAT imports it into one of them",
		"left session "+dir+"s.jsonl > : this person's chat here is not known yet: "+
			"--as agent:main:discord:direct:10=ACCOUNT/CHAT imports it",
		"new session "+dir+"s.jsonl > discord/888: 5 messages",
		"new session "+dir+"s.jsonl > discord/777: 5 messages",
		"new session "+dir+"s.jsonl > whatsapp/5@lid: 5 messages",
		"left session "+dir+"s.jsonl > : this person's chat here is not known yet: "+
			"--as agent:main:whatsapp:direct:+4366099999=ACCOUNT/CHAT imports it",
	)
}

// A crash or an earlier version of OpenClaw may have left lines that are no JSON. Such lines are
// left out, as OpenClaw does, and the entries before them stay in the conversation.
func TestOpenClawDamagedLines(t *testing.T) {
	d := newFixture(t)
	lines := strings.SplitAfter(clawTranscript("and now?"), "\n")
	lines[1] = "undefined\n" + lines[1]
	lines[6] = lines[6][:40] + "\n" // the answer
	text := strings.Join(lines, "") + `{"type":"message","id":"09","parentId":"08","mess`
	d.write("openclaw.json", "{}",
		"agents/main/sessions/sessions.json", `{"agent:main:telegram:direct:42":{"sessionId":"s"}}`,
		"agents/main/sessions/s.jsonl", text)
	d.want(OpenClaw, "new session agents/main/sessions/s.jsonl > telegram/42: 5 messages, "+
		"3 system, empty or damaged messages left out")
}

// A tool call without a name is left out, and the text beside it stays.
func TestOpenClawOddCalls(t *testing.T) {
	d := newFixture(t)
	text := clawTranscript("and now?") + `{"type":"message","id":"09","parentId":"08",` +
		`"timestamp":"2026-11-01T08:00:09Z","message":{"role":"assistant","content":[` +
		`{"type":"text","text":"I look."},{"type":"toolCall","id":"c2","name":""}]}}` + "\n"
	d.write("openclaw.json", "{}",
		"agents/main/sessions/sessions.json", `{"agent:main:telegram:direct:42":{"sessionId":"s"}}`,
		"agents/main/sessions/s.jsonl", text)
	d.run(OpenClaw, false)
	got := d.transcript(named("telegram/42"))
	if len(got) == 0 || got[len(got)-1] != "08:00 assistant I look." {
		t.Errorf("the transcript is %q, want it to end with the text", got)
	}
}
