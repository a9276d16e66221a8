package e2e

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"gateway/agent/llm/openai/openaitest"
	"gateway/store"
)

var update = flag.Bool("update", false, "write the golden files anew")

// A conversation is played by people on every platform. The golden file with its name contains
// what they read and the requests to the model.
type conversation struct {
	name   string
	config string // more lines for each account, then more tables of the configuration
	play   func(s *scene)
}

// A scene is a conversation on one platform.
type scene struct {
	chatPlatform
	t    testing.TB // a player if several scenes run concurrently
	name string     // name of the platform and of its account
	w    *world     // world of all platforms
	hold *hold      // delays the rest of the model's answer to "slowly three"
}

// A player is the testing.TB of one of several concurrent goroutines. FailNow may only be called
// on a test's own goroutine. So FailNow of a player ends the player's goroutine, and
// [world.onAll] ends the test.
type player struct{ testing.TB }

func (p player) FailNow() {
	p.Fail()
	runtime.Goexit()
}

func (p player) Fatal(args ...any) {
	p.Helper()
	p.Error(args...)
	runtime.Goexit()
}

func (p player) Fatalf(format string, args ...any) {
	p.Helper()
	p.Errorf(format, args...)
	runtime.Goexit()
}

// until waits until cond is true.
func (s *scene) until(what string, cond func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	if err := s.wait(ctx, cond); err != nil {
		s.t.Fatalf("%s: waited for %s: %v; Ann reads %q, Bob reads %q, "+
			"the group reads %q", s.name, what, err, s.direct(), s.stranger(), s.group())
	}
}

// hear waits until Ann reads a message with the given text.
func (s *scene) hear(text string) {
	s.t.Helper()
	s.until(text, func() bool { return has(s.direct(), text) })
}

// rows waits until the database contains n rows of the platform's account.
func (s *scene) rows(n int, what string) {
	s.t.Helper()
	s.w.eventually(what, func(db *store.DB) bool {
		return s.w.count(db, what+" AND account = '"+s.name+"'") == n
	})
}

// voices returns the number of voice notes that Ann has received.
func (s *scene) voices() (n int) {
	for _, m := range s.direct() {
		if _, file, ok := strings.Cut(m, "{"); ok && strings.HasPrefix(file, "voice") {
			n++
		}
	}
	return n
}

func has(list []string, text string) bool {
	return slices.ContainsFunc(list, func(m string) bool { return strings.Contains(m, text) })
}

// ask says something and waits for an answer with the given text.
func (s *scene) ask(text, answer string) string {
	s.t.Helper()
	id := s.say(text)
	s.hear(answer)
	return id
}

// recording is a voice message.
const recording = "OggS\x00\x02\x00\x00 OpusHead"

var conversations = []conversation{
	{name: "direct", play: func(s *scene) {
		s.ask("hello", "you said hello")
		s.ask("show me **markup**", "italics")
	}},
	{name: "reply", play: func(s *scene) {
		id := s.ask("the roses are red", "you said the roses")
		s.reply(id, "are they?")
		s.hear("you said are they?")
	}},
	{name: "edit", play: func(s *scene) {
		id := s.ask("the roses are blue", "you said the roses are blue")
		s.edit(id, "the roses are red")
		s.hear("you said the roses are red")
	}},
	{name: "button", play: func(s *scene) {
		s.ask("/queue", "queue mode is steer.")
		s.press("Collect")
		s.hear("is now collect")
	}},
	{name: "ask", play: func(s *scene) {
		s.say(`DO ask {"question":"Which roses shall I order?","options":["Red ones","White ones"]}`)
		s.hear("Which roses")
		if s.name == "whatsapp" {
			s.say("2")
		} else {
			s.press("White ones")
		}
		s.hear("the tools said The user chose: White ones")
		s.say(`DO ask {"question":"And how *many*?"}`)
		s.hear("And how")
		s.ask("a dozen, please", "the tools said The user answered: a dozen, please")
	}},
	{name: "approval", config: "[tools.write_file]\nowner = \"ask\"\n", play: func(s *scene) {
		file := s.name + ".txt"
		s.say(`DO write_file {"path":"` + file + `","content":"one\u001b[2K \u202eowt"}`)
		s.hear("Shall I?")
		s.press("Deny")
		s.hear("the tools said This was denied")
		s.say(`DO write_file {"path":"` + file + `","content":"**three**"}`)
		s.until("the second request", func() bool { return len(s.direct()) == 4 })
		s.press("Approve")
		s.hear(file + " was made")
	}},
	{name: "album", play: func(s *scene) {
		s.photos("my garden", pixels(300), pixels(400))
		s.hear("you said my garden")
		s.ask("which is bigger?", "you said which is bigger?")
	}},
	{name: "document", play: func(s *scene) {
		s.file("plan.txt", "text/plain", []byte("1. dig\n2. plant\n"))
		s.hear("you said")
	}},
	{name: "voice", play: func(s *scene) {
		s.voice([]byte(recording))
		s.hear("water the roses")
	}},
	{name: "spoken", play: func(s *scene) {
		s.ask("/voice auto", "I answer voice messages here with a voice message, too")
		s.ask("hello", "you said hello")
		s.voice([]byte(recording))
		s.hear("you said water the roses")
		s.until("its voice", func() bool { return s.voices() == 1 })
		s.ask("/voice never", "I only write")
	}},
	{name: "bombs", play: func(s *scene) {
		s.file("bomb.png", "image/png", imageBomb())
		s.hear("you said")
		s.file("bomb.docx", "application/zip", zipBomb())
		s.until("an answer", func() bool { return len(s.direct()) == 2 })
		s.ask("still there?", "you said still there?")
	}},
	{name: "hostile file", play: func(s *scene) {
		s.file("../../etc/\u202egnp.exe", "image/png", []byte("<html>no image</html>"))
		s.hear("you said")
	}},
	{name: "group", play: func(s *scene) {
		s.sayGroup("who has the shears?", false)
		s.sayGroup("where are the shears?", true)
		s.until("an answer", func() bool { return has(s.group(), "you said where are the shears?") })
		s.replyGroup("and the spade?")
		s.until("an answer", func() bool { return has(s.group(), "you said and the spade?") })
		s.sayGroup("/whoami", false)
		s.until("an answer", func() bool { return has(s.group(), "guest") })
		s.sayGroup("/new", false)
		s.until("a refusal", func() bool { return has(s.group(), "Only users, admins and owners") })
	}},
	{name: "stranger", play: func(s *scene) {
		s.ask("hello", "you said hello") // so that the owner's chat is known
		s.sayStranger("let me in")
		s.until("a code", func() bool { return has(s.stranger(), "pairing code") })
		s.hear("wants to talk to me")
		s.press("Let in")
		s.until("a welcome", func() bool { return has(s.stranger(), "Welcome, you are in") })
		s.hear("Bob can now talk to me (role: user)")
		s.sayStranger("who am I?")
		s.until("an answer", func() bool { return has(s.stranger(), "you said who am I?") })
	}},
	{name: "blocked", config: "access = \"open\"\nreaction = \"\"\n", play: func(s *scene) {
		s.refuse(true)
		s.sayStranger("do you hear me?")
		s.rows(1, "outbox WHERE state = 'dead'")
		s.rows(0, "outbox WHERE state IN ('waiting', 'sending')") // Bob was told, if that is possible
		// An owner who has written is told about new dead letters of the other platforms. So all three
		// must exist before Ann writes.
		s.w.eventually("what every platform gives up", func(db *store.DB) bool {
			return s.w.count(db, "outbox WHERE state = 'dead'") == 3
		})
		s.refuse(false)
		s.ask("and me?", "you said and me?")
		s.sayStranger("and now?")
		s.until("an answer", func() bool { return has(s.stranger(), "you said and now?") })
	}},
	{name: "long answer", play: func(s *scene) {
		s.say("a long answer, please")
		s.until("the end", func() bool { return has(s.direct(), "This is the end.") })
	}},
	{name: "threads", config: "streaming = true\nedit_interval = \"30ms\"\n", play: func(s *scene) {
		s.sayThread(1, "slowly one")
		s.sayThread(2, "slowly two")
		for thread, want := range map[int]string{1: "one one", 2: "two two"} {
			s.until("an answer", func() bool {
				return s.thread(thread) == nil && s.name == "whatsapp" ||
					has(s.thread(thread), want) && has(s.thread(thread), "is all")
			})
		}
	}},
	{name: "outage", config: "streaming = true\nedit_interval = \"30ms\"\n", play: func(s *scene) {
		s.say("slowly three")
		until(s.t, "the model to be asked", s.hold.reached)
		s.until("its beginning", func() bool { return s.name == "whatsapp" || len(s.direct()) > 0 })
		s.outage(true)
		s.hold.release()
		s.rows(1, "outbox WHERE attempts > 0") // the answer is ready, and can't be sent
		s.outage(false)
		s.hear("is all")
		s.ask("still there?", "you said still there?")
	}},
}

// TestConversations plays each conversation on each platform.
func TestConversations(t *testing.T) {
	t.Parallel()
	scenes := concurrentTests{t: t}
	defer scenes.all.Wait()
	for _, c := range conversations {
		scenes.run(c.name, func(t *testing.T) { playAll(t, &c) })
	}
}

// playAll plays c on all platforms, which one gateway serves, and compares with the golden file.
func playAll(t *testing.T, c *conversation) {
	asked := make(map[string][]string) // what the model was asked, by platform
	var mu sync.Mutex
	holds := map[string]*hold{"telegram": newHold(), "discord": newHold(), "whatsapp": newHold()}
	for _, h := range holds {
		defer h.release()
	}
	w, platforms := openPlatforms(t, c.config, func(r openaitest.Request) openaitest.Reply {
		mu.Lock()
		asked[platformOf(r)] = append(asked[platformOf(r)], lastUser(r))
		mu.Unlock()
		reply := answerConversations(r)
		if strings.Contains(lastWords(r), "slowly three") {
			reply.Hold = func(int) { holds[platformOf(r)].wait() }
		}
		return reply
	})
	w.onAll(platforms, func(s *scene) {
		s.hold = holds[s.name]
		c.play(s)
	})
	archive := new(txtar.Archive)
	for _, name := range slices.Sorted(maps.Keys(platforms)) {
		var b bytes.Buffer
		th := platforms[name]
		section(&b, "Ann reads", th.direct())
		section(&b, "Bob reads", th.stranger())
		section(&b, "the group reads", th.group())
		for thread := 1; thread <= 2; thread++ {
			section(&b, fmt.Sprint("thread ", thread), th.thread(thread))
		}
		for i, m := range asked[name] {
			asked[name][i] = changing.ReplaceAllStringFunc(m, changed)
		}
		slices.Sort(asked[name]) // the order of concurrent chats is not fixed
		section(&b, "the model is asked", asked[name])
		archive.Files = append(archive.Files, txtar.File{Name: name, Data: b.Bytes()})
	}
	name := strings.ReplaceAll(c.name, " ", "-") + ".txtar"
	compare(t, filepath.Join("testdata", "conversations", name), txtar.Format(archive))
}

// openPlatforms runs a gateway with an account on each platform. The lines of config before its
// first table apply to each account.
func openPlatforms(
	t *testing.T, config string, model openaitest.Answer,
) (*world, map[string]chatPlatform) {
	w, platforms := joinPlatforms(t, config, model)
	w.run()
	return w, platforms
}

// joinPlatforms is like openPlatforms, but does not start the gateway.
func joinPlatforms(
	t *testing.T, config string, model openaitest.Answer,
) (*world, map[string]chatPlatform) {
	w := newWorld(t, worldOptions{answer: model})
	platforms := map[string]chatPlatform{
		"telegram": openTelegram(w.telegram, w.url),
		"discord":  openDiscord(t),
		"whatsapp": openWhatsApp(t, w.home),
	}
	w.config = w.config[:strings.Index(w.config, "[channels.telegram]")]
	w.config += fmt.Sprintf("[transcription]\nmodel = \"whisper\"\nbase_url = %q\n"+
		"[media.speech]\nmodel = \"tts-1\"\nbase_url = %q\n", w.model.URL, w.model.URL)
	config, tables, found := strings.Cut(config, "[")
	if found {
		w.config += "[" + tables
	}
	for name, th := range platforms {
		w.config += "[channels." + name + "]\n" + th.config() + "rate_limit = \"off\"\n" + config
		if !strings.Contains(config, "streaming") {
			w.config += "streaming = false\n"
		}
	}
	w.configure("")
	w.model.Hear(recording, "water the roses, please")
	return w, platforms
}

// onAll plays on all platforms concurrently, and ends the test if a scene has failed.
func (w *world) onAll(platforms map[string]chatPlatform, play func(s *scene)) {
	w.t.Helper()
	mine := *w
	mine.t = player{w.t}
	var wg sync.WaitGroup
	for name, th := range platforms {
		if o, ok := th.(*onWhatsApp); ok {
			whatsApp := *o
			whatsApp.t = mine.t
			th = &whatsApp
		}
		wg.Go(func() {
			s := &scene{chatPlatform: th, t: mine.t, name: name, w: &mine}
			s.until("the gateway", s.ready)
			play(s)
		})
	}
	wg.Wait()
	if w.t.Failed() {
		w.t.FailNow()
	}
}

// section writes a list of messages below a title. An empty list is left out.
func section(b *bytes.Buffer, title string, list []string) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(b, "== %s\n", title)
	for _, m := range list {
		m = changing.ReplaceAllStringFunc(m, changed)
		fmt.Fprintf(b, "%s\n", strings.ReplaceAll(m, "\n", "\n\t"))
	}
}

// changed returns the placeholder for s.
func changed(s string) string {
	switch s[0] {
	case '[':
		return "[time]"
	case 'm':
		return "media/FILE"
	case '@', '1', '-':
		return "ID"
	}
	return "CODE"
}

// changing matches texts that differ in each run.
var changing = regexp.MustCompile(`\[[A-Z][a-z]+day \d{4}-\d\d-\d\d \d\d:\d\d [+-]\d\d:\d\d\]|` +
	`media/[0-9a-f]{16}|\b[A-Z2-7]{6}(?:[A-Z2-7]{2})?\b|@\d{12,}|\b1\d{14,}(@lid|@g\.us)?|-100\d{10}`)

func compare(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the conversation differs from %s (see -update); it is\n%s", file, got)
	}
}

var channelLine = regexp.MustCompile(`(?m)^Channel: (\w+)$`)

// platformOf returns the account of the conversation to which a request belongs.
func platformOf(r openaitest.Request) string {
	return channelLine.FindStringSubmatch(r.Messages[0].Content)[1]
}

// lastUser returns the last message of the user and the number of its images.
func lastUser(r openaitest.Request) string {
	for _, m := range slices.Backward(r.Messages) {
		if m.Role == "user" {
			if n := bytes.Count(m.Raw["content"], []byte(`"image_url":{`)); n > 0 {
				return fmt.Sprintf("%s {%d images}", m.Content, n)
			}
			return m.Content
		}
	}
	return ""
}

// answerConversations is the model of the conversations.
func answerConversations(r openaitest.Request) openaitest.Reply {
	text := lastWords(r)
	switch {
	case r.Messages[len(r.Messages)-1].Role == "tool", strings.HasPrefix(text, "DO "):
		return followOrders(r)
	case strings.Contains(text, "a long answer"):
		return say(longAnswer())
	case strings.Contains(text, "**markup**"):
		return say("**bold**, _italics_ and `code` with a <tag>, @everyone & " +
			"[a link](https://example.org/a_b)\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
	case strings.Contains(text, "slowly "):
		_, word, _ := strings.Cut(text, "slowly ")
		var pieces []string
		for range 40 {
			pieces = append(pieces, word+" ")
		}
		return openaitest.Reply{Text: append(pieces, "is all"), Between: 20 * time.Millisecond}
	}
	return say("you said " + text)
}

// envelopeHead matches the text that the gateway adds before a person's words in the last line.
var envelopeHead = regexp.MustCompile(`^(\[[^\]]*\] |Bob \(guest\): |Ann \(user\): )+`)

// lastWords returns the last line of the user's message without the text that the gateway adds.
func lastWords(r openaitest.Request) string {
	text := lastText(r)
	text = text[strings.LastIndexByte(text, '\n')+1:]
	return envelopeHead.ReplaceAllString(text, "")
}

// longAnswer returns 30,000 characters with code and tables.
func longAnswer() string {
	var b strings.Builder
	for i := 0; b.Len() < 30_000; i++ {
		fmt.Fprintf(&b, "## Part %d\n\nSome *words* about **part %d**, which is not the last one. ", i, i)
		b.WriteString(strings.Repeat("日本語 and more. ", 20) + "\n\n```go\n")
		for j := range 12 {
			fmt.Fprintf(&b, "if x[%d] < y && *p > %d {\n\treturn \"<b>&amp;</b>\"\n}\n", j, i)
		}
		b.WriteString("```\n\n| column | value |\n|---|---:|\n")
		for j := range 8 {
			fmt.Fprintf(&b, "| row %d of %d | %d |\n", j, i, i*j*1000)
		}
		b.WriteString("\n- one\n  - nested\n- two\n\n")
	}
	b.WriteString("This is the end.")
	return b.String()
}

// pixels returns an image with n pixels in a row.
func pixels(n int) []byte {
	img := image.NewGray(image.Rect(0, 0, n, n))
	img.SetGray(0, 0, color.Gray{Y: 200})
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		panic(err) // writing to memory does not fail
	}
	return b.Bytes()
}

// imageBomb returns a small image that claims to have a huge number of pixels.
func imageBomb() []byte {
	b := pixels(1)
	header := b[12:29] // type and content of the first chunk, before its checksum
	binary.BigEndian.PutUint32(header[4:], 1<<20)
	binary.BigEndian.PutUint32(header[8:], 1<<20)
	binary.BigEndian.PutUint32(b[29:], crc32.ChecksumIEEE(header))
	return b
}

// zipBomb returns a small document that unpacks to an extreme size. Its beginning is enough to
// refuse it, so the test needs no time limit.
func zipBomb() []byte {
	const pieces, size = 400, 3 << 18
	content := bytes.Repeat([]byte("<p>"), size/3)
	sum := crc32.NewIEEE()
	var packed bytes.Buffer // one piece, which unpacks without the pieces before it
	pack, err := flate.NewWriter(&packed, flate.BestSpeed)
	if err == nil {
		_, err = pack.Write(content)
	}
	if err == nil {
		err = pack.Flush()
	}
	for range pieces {
		sum.Write(content)
	}
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	if err == nil {
		_, err = z.Create("[Content_Types].xml")
	}
	last := []byte{1, 0, 0, 0xff, 0xff} // an empty last block
	var w io.Writer
	if err == nil {
		w, err = z.CreateRaw(&zip.FileHeader{Name: "word/document.xml", Method: zip.Deflate,
			CRC32: sum.Sum32(), UncompressedSize64: pieces * size,
			CompressedSize64: uint64(pieces*packed.Len() + len(last))})
	}
	if err == nil {
		_, err = w.Write(append(bytes.Repeat(packed.Bytes(), pieces), last...))
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		panic(err) // writing to memory does not fail
	}
	return b.Bytes()
}
