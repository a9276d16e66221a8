package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// maxBody is the greatest size of a request, in bytes.
const maxBody = 64 << 20

// A transport is an [http.RoundTripper] that answers requests of the chat completions protocol
// itself. It always streams.
type transport struct {
	delay time.Duration // pause after each word; none if 0 or less
}

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	defer req.Body.Close()
	ctx, cancel := context.WithCancel(req.Context())
	delay := time.Duration(0) // the first frame comes without a pause
	b := &body{close: cancel, wait: func() error {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
		}
		delay = t.delay
		return context.Cause(ctx)
	}}
	resp := &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Body: b, ContentLength: -1, Request: req,
	}
	var r request
	err := json.NewDecoder(io.LimitReader(req.Body, maxBody)).Decode(&r)
	if err != nil {
		resp.StatusCode = http.StatusBadRequest
		resp.Header.Set("Content-Type", "application/json")
		b.frames = []string{encode(object{"error": object{"message": err.Error()}})}
		return resp, nil
	}
	resp.Header.Set("Content-Type", "text/event-stream")
	b.frames = frames(answer(r))
	return resp, nil
}

// object is a JSON object to write.
type object map[string]any

// encode returns the JSON of v, whose type must be one that can always be encoded.
func encode(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// frames returns the frames of an answer. Each word is one, and so is a call.
func frames(r reply) []string {
	var list []string
	add := func(delta object, finish any) {
		list = append(list, fmt.Sprintf("data: %s\n\n", encode(object{"choices": []object{
			{"index": 0, "delta": delta, "finish_reason": finish}}})))
	}
	finish := "stop"
	if r.tool != "" {
		finish = "tool_calls"
		add(object{"tool_calls": []object{{"index": 0, "type": "function",
			"function": object{"name": r.tool, "arguments": encode(r.args)}}}}, nil)
	} else {
		for word := range strings.SplitAfterSeq(r.text, " ") {
			add(object{"content": word}, nil)
		}
	}
	// The end follows the last word at once.
	add(object{}, finish)
	n := len(list) - 2
	list[n] += list[n+1] + "data: [DONE]\n\n"
	return list[:n+1]
}

// A body is the stream of an answer.
type body struct {
	frames []string
	rest   string       // of the current frame
	wait   func() error // pauses before a frame; fails if the request has ended or Close was called
	close  func()
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	if b.rest == "" {
		if len(b.frames) == 0 {
			return 0, io.EOF
		}
		if err := b.wait(); err != nil {
			return 0, err
		}
		b.rest, b.frames = b.frames[0], b.frames[1:]
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Close ends a pause.
func (b *body) Close() error {
	b.close()
	return nil
}
