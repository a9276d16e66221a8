package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

// FuzzObjectFields checks that objectFields finds the same fields in a valid object as the
// standard library.
func FuzzObjectFields(f *testing.F) {
	f.Add(`{"a":1}`)
	f.Add(` { "a" : "b\"}" , "c" : [ {"d":[]} , 2 ], "e":null,"f":true , "g": -1.5e3 } `)
	f.Add(`{"\u0061\n":"\\","":{}}`)
	f.Fuzz(func(t *testing.T, in string) {
		var want map[string]json.RawMessage
		if !utf8.ValidString(in) || json.Unmarshal([]byte(in), &want) != nil || want == nil {
			return // objectFields keeps bytes that are not UTF-8
		}
		got := maps.Collect(objectFields([]byte(in)))
		if len(got) == 0 && len(want) == 0 {
			return
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestTextOf(t *testing.T) {
	for raw, want := range map[string]text{
		`"plain"`: "plain", `"a\"b\u00e9\n"`: "a\"bé\n", `null`: "", ``: "", `""`: "",
		`{"a":1}`: `{"a":1}`, `7`: "7",
		`[{"type":"text","text":"a"},{"type":"image"},{"text":"b"}]`: "ab",
	} {
		if got := textOf(json.RawMessage(raw)); got != want {
			t.Errorf("textOf(%s) = %q, want %q", raw, got, want)
		}
	}
}

// Proxies of Gemini send a reason with each chunk, and Open WebUI one after each chunk. It does not
// mean that the answer ends there, also if the model thinks meanwhile, or if the connection breaks.
// See https://github.com/su-kaka/gcli2api/issues/403,
// https://github.com/QuantumNous/new-api/issues/378 and
// https://github.com/1jehuang/jcode/issues/1326.
func TestReasonInEachChunk(t *testing.T) {
	chunk := func(field, text string) string {
		return fmt.Sprintf(`data: {"choices":[{"index":0,"delta":{%q:%q},"finish_reason":"stop"}]}`,
			field, text) + "\n\n"
	}
	for _, tt := range []struct {
		name  string
		parts []string // 20 seconds pass between them
		end   error
		want  error
	}{
		{"pauses", []string{chunk("reasoning_content", "hm"), chunk("content", "a"),
			chunk("content", "b") + done + "\n\n"}, nil, nil},
		{"own chunks", []string{`data: {"choices":[{"delta":{"reasoning":"hm"}}]}` + "\n\n" +
			stop + "\n\n", content("a") + "\n\n" + stop + "\n\n",
			content("b") + "\n\n" + stop + "\n\n"}, nil, nil},
		{"break", []string{chunk("content", "a"), chunk("content", "b")}, io.ErrUnexpectedEOF,
			ErrTruncated},
		{"no mark of the end", []string{chunk("content", "a"), chunk("content", "b")}, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := func(r *http.Request) (*http.Response, error) {
					body, w := io.Pipe()
					context.AfterFunc(r.Context(), func() { w.CloseWithError(r.Context().Err()) })
					go func() {
						for _, part := range tt.parts {
							select {
							case <-time.After(20 * time.Second):
							case <-r.Context().Done():
								return
							}
							io.WriteString(w, part)
						}
						w.CloseWithError(tt.end)
					}()
					return &http.Response{StatusCode: 200, Header: http.Header{}, Request: r, Body: body}, nil
				}
				m := New("test", "fake", &Options{HTTP: &http.Client{Transport: transport(slow)}})
				text, _, err := collect(t.Context(), m, ask("x"))
				if text != "ab" || !errors.Is(err, tt.want) {
					t.Errorf("got %q, %v, want ab, %v", text, err, tt.want)
				}
			})
		})
	}
}

// A transport is a function that makes calls.
type transport func(r *http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
