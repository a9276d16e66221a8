//go:build unix

package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"gateway/store"
)

// textFile matches the path of a text that somebody sent.
var textFile = regexp.MustCompile(`media/[0-9a-f]{16}\.txt`)

// TestPersonsFiles checks that a file that a person has sent on one platform opens in their chats
// on the others, also after a kill -9, and neither in another person's chats nor in a group.
func TestPersonsFiles(t *testing.T) {
	t.Parallel()
	w, platforms := joinPlatforms(t, "access = \"open\"\nsession = \"person\"\n", followOrders)
	w.model.Keep(10_000)
	bob := platforms["whatsapp"].(*onWhatsApp).bob.Phone()
	w.config = strings.NewReplacer("owners = [7]", "owners = [7, 8]", `"]`+"\nrate_limit",
		`", "+`+bob+"\"]\nrate_limit").Replace(w.config) // so that Bob has a number, too
	w.configure("")
	p := w.start()
	p.ready()
	w.onAll(platforms, func(s *scene) {
		s.ask("hello", "you said")
		s.sayStranger("hello")
		s.until("an answer to Bob", func() bool { return has(s.stranger(), "you said") })
	})
	for _, name := range []string{"Ann", "Bob"} {
		w.linkAll(name)
	}
	w.onAll(platforms, func(s *scene) {
		s.file("notes.txt", "text/plain", []byte("the word is "+s.name+"-word"))
		s.hear(s.name + "-word")
	})
	files := make(map[string]string) // by content
	for _, r := range w.model.Requests() {
		text := lastText(r)
		for name := range platforms {
			if path := textFile.FindString(text); path != "" && strings.Contains(text, name+"-word") {
				files[name+"-word"] = path
			}
		}
	}
	if len(files) != len(platforms) {
		t.Fatalf("the files are %v, want one of each platform", files)
	}
	p.kill()
	w.start().ready()
	var orders []string
	for _, path := range files {
		orders = append(orders, fmt.Sprintf("DO read_file {\"path\":%q}", path))
	}
	order := strings.Join(orders, "\n")
	w.onAll(platforms, func(s *scene) {
		s.say(order)
		s.until("all files", func() bool {
			list := s.direct()
			for word := range files {
				if !strings.Contains(list[len(list)-1], word) {
					return false
				}
			}
			return true
		})
		s.sayStranger(order)
		s.until("a refusal to Bob", func() bool { return has(s.stranger(), "the tools said") })
		s.sayGroup(order, true)
		s.until("a refusal to the group", func() bool { return has(s.group(), "the tools said") })
		for _, text := range append(s.stranger(), s.group()...) {
			if strings.Contains(text, "-word") {
				s.t.Errorf("%s: others read %q", s.name, text)
			}
		}
	})
}

// linkAll makes all people with a name one person.
func (w *world) linkAll(name string) {
	w.t.Helper()
	var ids []string
	w.look(func(db *store.DB) {
		var id int64
		for range w.query(db, []any{&id}, "SELECT id FROM people WHERE name = $1 ORDER BY id", name) {
			ids = append(ids, fmt.Sprint(id))
		}
	})
	if len(ids) != 3 {
		w.t.Fatalf("the numbers of %s are %v, want one for each platform", name, ids)
	}
	for _, other := range ids[1:] {
		if out, err := w.gateway("people", "link", ids[0], other); err != nil {
			w.t.Fatalf("link: %v\n%s", err, out)
		}
	}
}
