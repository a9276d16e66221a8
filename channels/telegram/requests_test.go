package telegram_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/telegram"
)

var update = flag.Bool("update", false, "write what is sent now to testdata")

// A recorder is a transport that records calls as text and gives all of them the same answer.
type recorder struct {
	answering
	log strings.Builder
}

func (c *recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	fmt.Fprintln(&c.log, strings.ReplaceAll(r.URL.EscapedPath(), url.PathEscape(token), "TOKEN"))
	params := make(map[string]string)
	kind, options, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err != nil:
		return nil, err
	case kind == "multipart/form-data":
		err = readForm(multipart.NewReader(r.Body, options["boundary"]), params)
	default:
		var body []byte
		body, err = io.ReadAll(r.Body)
		values, _ := url.ParseQuery(string(body)) // an invalid value is missing in the record
		for name := range values {
			params[name] = values.Get(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		fmt.Fprintf(&c.log, "  %s: %s\n", name, params[name])
	}
	if err != nil {
		return nil, err
	}
	return c.answering.RoundTrip(r)
}

func readForm(form *multipart.Reader, params map[string]string) error {
	for {
		part, err := form.NextPart()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		body, err := io.ReadAll(part)
		if err != nil {
			return err
		}
		params[part.FormName()] = string(body)
		if part.FileName() != "" {
			params[part.FormName()] = fmt.Sprintf("file %q of %s: %s",
				part.FileName(), part.Header.Get("Content-Type"), body)
		}
	}
}

// TestRequests compares the requests with testdata/requests.txt. The names and forms there
// should be those of https://core.telegram.org/bots/api.
func TestRequests(t *testing.T) {
	rec := &recorder{answering: answering{`{"message_id":1}`}}
	channel := func(rich bool) *telegram.Channel {
		return telegram.New("tg", token, &telegram.Options{
			BaseURL: "http://api.test/", Transport: rec, Rich: rich, Drafts: true})
	}
	c, rich := channel(false), channel(true)
	buttons := []bus.Button{{Label: "Yes", Text: "/approve 1"}, {Label: "No", Text: "/deny 1"}}
	topic := bus.Address{Account: "tg", Chat: "-1001", Thread: "7"}
	file := func(kind bus.Kind, mimeType string) *bus.File {
		return fileOf(bus.Attachment{Kind: kind, Type: mimeType, Seconds: 9}, []byte("data"))
	}
	send := func(c *telegram.Channel, part bus.Part) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := c.Send(ctx, part)
			return err
		}
	}
	for _, tt := range []struct {
		name string
		call func(context.Context) error
	}{
		{"text", send(c, bus.Part{To: topic, Text: "**a** & b", ReplyTo: "5", Buttons: buttons})},
		{"rich", send(rich, bus.Part{To: topic, Text: "**a** & b", ReplyTo: "5", Buttons: buttons})},
		{"photo", send(c, bus.Part{To: topic, Text: "**a** & b", ReplyTo: "5:e9", Buttons: buttons,
			File: file(bus.Photo, "image/png")})},
		{"video", send(c, bus.Part{To: ada, File: file(bus.Video, "video/mp4")})},
		{"animation", send(c, bus.Part{To: ada, File: file(bus.Animation, "image/gif")})},
		{"voice", send(c, bus.Part{To: ada, ReplyTo: "cb7", File: file(bus.Voice, "audio/ogg")})},
		{"audio", send(c, bus.Part{To: ada, File: file(bus.Audio, "audio/mpeg")})},
		{"document", send(rich, bus.Part{To: ada, File: file(bus.Document, "text/plain")})},
		{"edit", func(ctx context.Context) error { return c.Edit(ctx, topic, "5", "**a**") }},
		{"rich edit", func(ctx context.Context) error { return rich.Edit(ctx, topic, "5", "**a**") }},
		{"draft", func(ctx context.Context) error { return rich.Draft(ctx, ada, "s", "**a**") }},
		{"remove", func(ctx context.Context) error { return c.Remove(ctx, topic, "5") }},
		{"react", func(ctx context.Context) error { return c.React(ctx, topic, "5", "👀") }},
		{"react no more", func(ctx context.Context) error { return c.React(ctx, topic, "5", "") }},
		{"type", func(ctx context.Context) error { return c.Type(ctx, topic) }},
		{"commands", func(ctx context.Context) error {
			return c.SetCommands(ctx, []channels.Command{{Name: "new", Description: "Start over"}})
		}},
	} {
		fmt.Fprintf(&rec.log, "-- %s --\n", tt.name)
		if err := tt.call(t.Context()); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	const golden = "testdata/requests.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(rec.log.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got := rec.log.String(); got != string(want) {
		t.Errorf("sent\n%s\nwant\n%s", got, want)
	}
}
