//go:build unix

package e2e

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gateway/agent/llm/openai/openaitest"
	"gateway/store"
)

// textFile matches the path of a stored text that somebody sent.
var textFile = regexp.MustCompile(`media/[0-9a-f]{16}\.txt`)

// TestPersonsFiles checks that a person can open a file or a picture from one platform in their
// chats on the others, also after a kill -9. It can't be opened in another person's chats or in a
// group.
func TestPersonsFiles(t *testing.T) {
	t.Parallel()
	w, platforms := joinPlatforms(t, "access = \"open\"\nsession = \"person\"\n", followOrders)
	w.model.Keep(10_000)
	bob := platforms["whatsapp"].(*onWhatsApp).bob.Phone()
	w.config = strings.NewReplacer("owners = [7]", "owners = [7, 8]", `"]`+"\nrate_limit",
		`", "+`+bob+"\"]\nrate_limit").Replace(w.config) // so that Bob is in the table people, too
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
		s.photos(s.name+" garden", pixels(pictureWidths[s.name]))
		s.hear(s.name + " garden")
	})
	files, pictures := make(map[string]string), make(map[string]string) // paths by word, by platform
	for _, r := range w.model.Requests() {
		text := lastText(r)
		for name := range platforms {
			if path := textFile.FindString(text); path != "" && strings.Contains(text, name+"-word") {
				files[name+"-word"] = path
			}
			if path := mediaFile.FindString(text); strings.Contains(text, name+" garden") {
				pictures[name] = path
			}
		}
	}
	if len(files) != len(platforms) {
		t.Fatalf("the files are %v, want one of each platform", files)
	}
	if len(pictures) != len(platforms) {
		t.Fatalf("the pictures are %v, want one of each platform", pictures)
	}
	p.kill()
	w.start().ready()
	started := len(w.model.Requests())
	order := readAll(files)
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
	})
	for _, r := range w.model.Requests()[started:] {
		if n := picturesIn(r.Messages); n != len(platforms) {
			t.Errorf("a request from %s shows %d of Ann's pictures", platformOf(r), n)
		}
	}
	pictureOrder := readAll(pictures)
	w.onAll(platforms, func(s *scene) {
		s.say(pictureOrder)
		s.until("all pictures", func() bool {
			return slices.ContainsFunc(w.model.Requests(), func(r openaitest.Request) bool {
				last := len(r.Messages) - 1
				for last > 0 && !strings.Contains(r.Messages[last].Content, pictureOrder) {
					last--
				}
				return last > 0 && platformOf(r) == s.name &&
					picturesIn(r.Messages[last:]) == len(platforms)
			})
		})
	})
	started = len(w.model.Requests())
	order += "\n" + pictureOrder
	w.onAll(platforms, func(s *scene) {
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
	for _, r := range w.model.Requests()[started:] {
		if images(r) > 0 {
			t.Errorf("others see %d pictures on %s", images(r), platformOf(r))
		}
	}
}

// readAll returns orders for the model to read the files at paths.
func readAll(paths map[string]string) string {
	var orders []string
	for _, path := range paths {
		orders = append(orders, fmt.Sprintf("DO read_file {\"path\":%q}", path))
	}
	return strings.Join(orders, "\n")
}

// pictureWidths has the size of the picture that Ann sends on each platform.
var pictureWidths = map[string]int{"telegram": 310, "discord": 320, "whatsapp": 330}

// picturesIn returns how many of Ann's pictures the messages show.
func picturesIn(messages []openaitest.Message) (n int) {
	for _, size := range pictureWidths {
		want := pixels(size)
		if slices.ContainsFunc(messages, func(m openaitest.Message) bool {
			return slices.ContainsFunc(m.Images, func(im openaitest.Image) bool {
				return bytes.Equal(im.Data, want)
			})
		}) {
			n++
		}
	}
	return n
}

// linkAll links all people with this name, one on each platform, so that they are one person.
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
