package discord_test

import (
	"testing"
	"time"

	"gateway/bus"
)

// Find finds a sent message by its content. It looks only at messages of the bot that are newer
// than the known ones.
func TestFind(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	since := time.Now()
	send := func(key string, part bus.Part) string {
		part.Key, part.To = key, ada
		id, err := w.c.Send(t.Context(), part)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	first := send("1", bus.Part{Text: "the **same**"})
	second := send("2", bus.Part{Text: "the **same** "})
	file := send("3", bus.Part{Text: "the **same**", File: fileOf("a.txt", "text/plain", "content")})
	w.Say(direct, person, "yes")
	for _, tt := range []struct {
		text  string
		file  bool
		known []string
		since time.Time
		want  string
	}{
		{"the **same**", false, nil, since, first},
		{"the **same**", false, []string{first}, since, second},
		{"the **same**", false, []string{second, first}, since, ""},
		{"the **same**", true, nil, since, file},
		{"another", false, nil, since, ""},
		{"yes", false, nil, since, ""},
		{"the **same**", false, nil, since.Add(time.Hour), ""},
	} {
		part := bus.Part{To: ada, Text: tt.text}
		if tt.file {
			part.File = fileOf("a.txt", "text/plain", "content")
		}
		id, err := w.c.Find(t.Context(), part, tt.known, tt.since)
		if err != nil || id != tt.want {
			t.Errorf("Find %q, file %v, after %v, since %v = %q, %v, want %q",
				tt.text, tt.file, tt.known, tt.since, id, err, tt.want)
		}
	}
}
