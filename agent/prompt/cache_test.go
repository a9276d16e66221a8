package prompt

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"gateway/agent/llm"
	"gateway/memory"
	"gateway/session"
)

// full returns a system prompt that has all parts.
func full() *System {
	return &System{Name: "Robin", Workspace: "/srv/robin", FormatHint: "Plain text.",
		Tools:  []llm.ToolSpec{{Name: "read_file"}, {Name: "grep"}},
		Scoped: true, Heartbeat: true, Documents: []Document{{"AGENTS.md", "Work."}}, Contact: true,
		Memory:       "The cat is called Tom.",
		Pinned:       Pinned{Facts: []memory.Fact{{Key: "dog", Value: "Rex"}}},
		ActiveSkills: "Always so.", Skills: "<skills></skills>",
		Notes:   []memory.Entry{{Cursor: 1, Text: "They said hello."}, {Cursor: 2, Text: "And bye."}},
		Session: "test:a", NotesSize: 100, Summary: session.Summary{Text: "It began well.", From: 9},
		Account: "test", Group: "Family", Zone: time.UTC}
}

// A change of any field that the prompt shows changes the cached prompt, too.
func TestCache(t *testing.T) {
	c := new(Cache)
	check := func(name string, s *System) {
		t.Helper()
		want := s.Text()
		for range 2 { // first created, then from the cache
			if got := c.Text(s); got != want {
				t.Errorf("after a change of %s the prompt is\n%s\nwant\n%s", name, got, want)
			}
		}
	}
	check("nothing", full())
	fields := reflect.TypeFor[System]()
	for i := range fields.NumField() {
		s, name := full(), fields.Field(i).Name
		switch f := reflect.ValueOf(s).Elem().Field(i); f.Interface().(type) {
		case string:
			f.SetString(f.String() + ".")
		case bool:
			f.SetBool(!f.Bool())
		case int:
			f.SetInt(12)
		case *time.Location:
			s.Zone = time.FixedZone("Elsewhere", 3600)
		case session.Summary:
			s.Summary.Text = "It goes on."
		case Pinned:
			s.Pinned.Left++
		default: // a list
			f.Set(f.Slice(0, f.Len()-1))
		}
		check(name, s)
		check("nothing", full())
	}
	s := full()
	if a, b := c.Text(s), c.Text(s); unsafe.StringData(a) != unsafe.StringData(b) {
		t.Error("the same prompt is made again")
	}
}

// The size of the cache is bounded.
func TestCacheBound(t *testing.T) {
	c := new(Cache)
	s := full()
	for i := range 40 {
		s.Memory = fmt.Sprint(i, strings.Repeat("x", maxTexts/16))
		c.Text(s)
		size := 0
		for _, m := range c.known {
			size += len(m.text)
		}
		if size > maxTexts || size != c.size {
			t.Fatalf("after %d prompts it holds %d bytes, and counts %d", i+1, size, c.size)
		}
	}
}

func BenchmarkSystem(b *testing.B) {
	c, s := new(Cache), full()
	s.Documents = []Document{{"AGENTS.md", strings.Repeat("Work. ", 500)}}
	b.Run("made", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Text()
		}
	})
	b.Run("known", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.Text(s)
		}
	})
}
