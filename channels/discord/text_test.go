package discord

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"gateway/channels"
)

// nested matches a mention inside another one.
var nested = regexp.MustCompile(`<[^>]*<`)

// FuzzRead checks that read keeps text valid, loses no text and resolves mentions. It also
// checks that channels.Clean returns one short line.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"hello", "<@1>, hello", "a <@!2> b", "<@&3> <#4> <a:x:5> </x:6> <t:7:R>", "<", "<<<@1>>>",
		"<@1><@1><@1>", "\n<@1> \n", "<@\xff>", "<@1", "<t:99999999999999999999>", "<::>", "</:1>",
	} {
		f.Add(seed)
	}
	v := &mentionNames{me: "1", users: map[string]string{"1": "Us", "2": "Two"},
		roles: map[string]string{"3": "Three"}, channels: func(id string) string {
			return map[string]string{"4": "four"}[id]
		}}
	quoting := *v
	quoting.me = ""
	f.Fuzz(func(t *testing.T, text string) {
		got := v.read(text)
		if utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Errorf("%q became %q, which is not valid", text, got)
		}
		if strings.TrimSpace(text) != "" && got == "" {
			t.Errorf("%q became nothing", text)
		}
		if !strings.Contains(text, "<") && got != text {
			t.Errorf("%q became %q", text, got)
		}
		if strings.Contains(got, "<@1>") && !nested.MatchString(text) {
			t.Errorf("%q became %q: we are still mentioned", text, got)
		}
		if n := strings.Count(text, "@"); strings.Count(quoting.read(text), "@") != n &&
			!strings.Contains(text, ":") {
			t.Errorf("%q became %q: a mention is lost", text, quoting.read(text))
		}
		if name := channels.Clean(text, 20); utf8.RuneCountInString(name) > 20 ||
			strings.ContainsAny(name, "\n\r\t\u202e\x00") || channels.Clean(name, 20) != name {
			t.Errorf("%q became the name %q", text, name)
		}
	})
}

// TestDates checks what becomes of dates, and of what only looks like one.
func TestDates(t *testing.T) {
	v := new(mentionNames)
	for text, want := range map[string]string{
		"at <t:1700000000:R>.": "at 2023-11-14 22:13 UTC.",
		"<t:-1>":               "1969-12-31 23:59 UTC",
		"<t:x>":                "<t:x>",
		"<t:99999999999999>":   "<t:99999999999999>",
		"<t:-99999999999999>":  "<t:-99999999999999>",
		"<@> <@!> <@&>":        "<@> <@!> <@&>",
	} {
		if got := v.read(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// FuzzFirstError checks that each error body of Discord, however deep or odd, becomes one line.
func FuzzFirstError(f *testing.F) {
	f.Add(`{"a":{"b":{"_errors":[{"code":"X","message":"too long"}]}}}`)
	f.Add(`{"_errors":[{}]}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, raw string) {
		if s := firstError([]byte(raw)); strings.Contains(s, "\n") {
			t.Errorf("%q became %q", raw, s)
		}
	})
}

// A roundTrips counts requests and refuses them all.
type roundTrips struct{ n int }

func (r *roundTrips) RoundTrip(*http.Request) (*http.Response, error) {
	r.n++
	return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(`{"code":50001,"message":"Missing Access"}`))}, nil
}

// However many foreign channels people mention, the bot stays below the number of refused calls
// for which Discord blocks it: 10,000 within ten minutes.
func TestForeignMentions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := &roundTrips{}
		d := newDirectory(New("dc", "token", &Options{Transport: asked}), "1")
		where := place{ID: "2", Guild: "3"}
		for i := range 600 { // ten minutes, in seconds
			for j := range 4 { // four people
				first := 10_000 + maxLookups*(4*i+j)
				var text strings.Builder
				for id := range maxLookups {
					fmt.Fprintf(&text, "<#%d>", first+id)
				}
				d.lookUpMentions(t.Context(), where, text.String())
			}
			time.Sleep(time.Second)
		}
		if asked.n < 100 || asked.n > 1000 {
			t.Errorf("Discord was asked %d times", asked.n)
		}
	})
}
