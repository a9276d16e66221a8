package discord

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A guildAnswer answers each request with a guild, and notes the address.
type guildAnswer struct{ asked []string }

func (g *guildAnswer) RoundTrip(r *http.Request) (*http.Response, error) {
	g.asked = append(g.asked, r.URL.Path)
	const club = `{"name":"Club","roles":[{"id":"71","name":"us","tags":{"bot_id":"9"}}]}`
	return &http.Response{StatusCode: http.StatusOK, Request: r,
		Body: io.NopCloser(strings.NewReader(club))}, nil
}

// A role may be newer than what the bot knows about its guild. The bot then looks the guild up
// again, so that a mention of its own role addresses it. A direct chat has no guild to look up.
func TestNewRole(t *testing.T) {
	answer := new(guildAnswer)
	places := newDirectory(New("dc", "token", &Options{Transport: answer}), "9")
	places.places.Put("62", place{ID: "62", Guild: "61", at: time.Now()})
	places.guilds.Put("61", guild{at: time.Now().Add(-2 * guildTime)})
	tr := newTranslator("dc", user{ID: "9", Username: "gateway"}, places)
	person := user{ID: "42", Username: "ada"}
	direct := message{ID: "1001", Channel: "52", Author: person, live: true,
		content: content{Content: "hello"}}
	in, ok, err := tr.inbound(t.Context(), &direct, false)
	if err != nil || !ok || in.Text != "hello" || len(answer.asked) != 0 {
		t.Errorf("a direct message is %+v, %t, %v; requests: %q", in, ok, err, answer.asked)
	}
	mention := message{ID: "1002", Channel: "62", Guild: "61", Author: person, live: true,
		content: content{Content: "<@&71> hello", Roles: []string{"71"}}}
	in, ok, err = tr.inbound(t.Context(), &mention, false)
	if err != nil || !ok || in.Text != "hello" || !in.Addressed {
		t.Errorf("a mention of the new role is %+v, %t, %v; requests: %q", in, ok, err, answer.asked)
	}
}

// An author may edit a message without changing its text, for example by removing a file. That is
// not news.
func TestEditWithoutNews(t *testing.T) {
	tr := newTranslator("dc", user{ID: "9"}, newDirectory(New("dc", "token", nil), "9"))
	began := time.Now()
	for i, tt := range []struct {
		text string
		news bool
	}{{"hello", true}, {"hello", false}, {"hi", true}, {"hi", false}, {"hello", true}} {
		m := message{ID: "1001", Channel: "52", Author: user{ID: "42"}, live: true,
			content: content{Content: tt.text}}
		if i > 0 {
			edited := began.Add(time.Duration(i) * time.Second)
			m.Edited = &edited
		}
		if _, news, err := tr.inbound(t.Context(), &m, i > 0); err != nil || news != tt.news {
			t.Errorf("edit %d to %q is news: %t, %v", i, tt.text, news, err)
		}
	}
}
