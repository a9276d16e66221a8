package cli

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gateway/channels/terminal"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/store"
)

// TestFind checks that a chat waits for a gateway that has begun to start and does not listen yet.
func TestFind(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	file := filepath.Join(home, "gateway.db")
	cfg := &config.Config{Gateway: config.Gateway{Home: home},
		Store: config.Store{URL: "sqlite:" + file}}
	if conn, err := find(t.Context(), cfg); conn != nil || err != nil {
		t.Errorf("without a gateway: %v, %v; want nil, nil", conn, err)
	}
	unlock, err := store.Lock(file + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unlock() })
	synctest.Test(t, func(t *testing.T) {
		time.AfterFunc(30*time.Second, func() {
			l, err := net.Listen("unix", app.SocketPath(home))
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { _ = l.Close() })
		})
		conn, err := find(t.Context(), cfg)
		if conn == nil || err != nil {
			t.Fatalf("with a gateway that starts: %v, %v; want a connection", conn, err)
		}
		_ = conn.Close()
	})
}

// TestFindNoChats checks the errors for a gateway that runs and has no socket: the path of its home
// is too long, its terminal is disabled, or its log has the reason.
func TestFindNoChats(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		enabled bool
		want    string
	}{
		{strings.Repeat("h", 100), true, "too long"},
		{"h", false, "[channels.terminal]"},
		{"h", true, "its log"},
	} {
		home := filepath.Join(t.TempDir(), test.name)
		file := filepath.Join(t.TempDir(), "gateway.db")
		cfg := &config.Config{Gateway: config.Gateway{Home: home},
			Store:    config.Store{URL: "sqlite:" + file},
			Channels: map[string]config.Channel{"terminal": {Enabled: test.enabled}}}
		unlock, err := store.Lock(file + ".lock")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			conn, err := find(t.Context(), cfg)
			if conn != nil || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("find = %v, %v; want an error with %q", conn, err, test.want)
			}
		})
		if err := unlock(); err != nil {
			t.Error(err)
		}
	}
}

// TestFindAgain checks a chat that has found no gateway and is about to start one. If another
// process has started one meanwhile, the chat connects to it and sends it the message from
// standard input.
func TestFindAgain(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer func(before *os.File) { os.Stdin = before }(os.Stdin)
	os.Stdin = in
	_, err = out.WriteString("hello")
	if err := errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	file := filepath.Join(home, "gateway.db")
	cfg := &config.Config{Gateway: config.Gateway{Home: home, Workspace: home},
		Store: config.Store{URL: "sqlite:" + file}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sent := make(chan struct{})
	load := func() (*config.Config, error) { return cfg, nil }
	all := func() (*config.Config, error) {
		unlock, err := store.Lock(file + ".lock")
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = unlock() })
		l, err := net.Listen("unix", app.SocketPath(home))
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			defer cancel()
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				if strings.Contains(lines.Text(), "hello") {
					close(sent)
					return
				}
			}
		}()
		return cfg, nil
	}
	err = chat(ctx, load, all, terminal.ScreenOptions{})
	select {
	case <-sent:
	default:
		t.Errorf("chat = %v; want the message at the other gateway", err)
	}
}
