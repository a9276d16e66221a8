package mcpserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
)

// Refuse answers each request from in with an error that contains text. It returns after it has
// answered the request "initialize", or when in or ctx ends. Clients show such an error to people,
// but not the output on stderr.
func Refuse(ctx context.Context, in io.Reader, out io.Writer, text string) error {
	done := make(chan error, 1)
	go func() { done <- refuse(in, out, text) }() // the goroutine ends when in ends
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func refuse(in io.Reader, out io.Writer, text string) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxMessage)
	for lines.Scan() {
		var request struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if err := json.Unmarshal(lines.Bytes(), &request); err != nil {
			return fmt.Errorf("mcpserver: refuse: %w", err)
		}
		if request.ID == nil {
			continue // a notification needs no answer
		}
		answer, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": request.ID,
			"error": map[string]any{"code": codeInternal, "message": text}})
		if err == nil {
			_, err = out.Write(append(answer, '\n'))
		}
		if err != nil || request.Method == "initialize" {
			return err
		}
	}
	return lines.Err()
}

// codeInternal is JSON-RPC's "internal error".
const codeInternal = -32603
