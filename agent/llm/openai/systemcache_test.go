package openai

import (
	"fmt"
	"strings"
	"testing"

	"gateway/agent/llm"
)

// The cache returns the JSON of the given text. Its size is bounded.
func TestSystemCache(t *testing.T) {
	for _, mark := range []bool{false, true} {
		c := systemCache{mark: mark}
		for i := range 40 {
			text := fmt.Sprint("prompt ", i%30, strings.Repeat("\n<x>", maxSystems/64))
			want, err := (&systemCache{mark: mark}).encode(text)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				got, err := c.encode(text)
				if err != nil || string(got) != string(want) {
					t.Fatalf("encode(prompt %d) = %.60s, %v, want %.60s", i, got, err, want)
				}
			}
			size := 0
			for _, body := range c.kept {
				size += len(body)
			}
			if size > maxSystems || size != c.size {
				t.Fatalf("it holds %d bytes, and counts %d", size, c.size)
			}
		}
	}
}

// BenchmarkBody encodes requests with n messages and a system prompt of a usual length.
func BenchmarkBody(b *testing.B) {
	for _, n := range []int{1, 40} {
		req := llm.Request{Messages: []llm.Message{{Role: llm.System,
			Text: strings.Repeat("Work so, and \"not\" otherwise.\n", 300)}}}
		for range n {
			req.Messages = append(req.Messages, llm.Message{Role: llm.User,
				Text: strings.Repeat("What is that?\n", 10)})
		}
		b.Run(fmt.Sprint("messages=", n), func(b *testing.B) {
			m := New("test", "m", nil)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.body(req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
