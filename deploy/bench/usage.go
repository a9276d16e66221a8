package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// written counts the bytes that the process has written since its start, to files and connections.
type written struct {
	bytes, calls float64
}

// written reads p's count from the system.
func (p *process) written() (w written, err error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/io")
	if err != nil {
		return w, fmt.Errorf("writes can be counted on Linux only: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch name {
		case "wchar":
			w.bytes, err = strconv.ParseFloat(value, 64)
		case "syscw":
			w.calls, err = strconv.ParseFloat(value, 64)
		}
		if err != nil {
			return w, err
		}
	}
	return w, nil
}

// prompt is the size of the prompt before the conversation, in characters.
type prompt struct {
	System int `json:"system_chars"`
	Tools  int `json:"tools_chars"` // as JSON
}

// A promptMeter measures the prompt of the first request that it sees.
type promptMeter struct {
	once sync.Once
	size prompt
	err  error
}

// look measures the body of r and leaves it readable.
func (m *promptMeter) look(r *http.Request) {
	m.once.Do(func() {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			m.err = err
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var request struct {
			Messages []struct {
				Role    string          `json:"role"`
				Content json.RawMessage `json:"content"`
			} `json:"messages"`
			Tools json.RawMessage `json:"tools"`
		}
		if m.err = json.Unmarshal(body, &request); m.err != nil {
			return
		}
		for _, message := range request.Messages {
			if message.Role == "system" {
				m.size.System += utf8.RuneCount(message.Content)
			}
		}
		m.size.Tools = utf8.RuneCount(request.Tools)
	})
}
