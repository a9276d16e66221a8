package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"gateway/agent/policy"
	"gateway/agent/question"
	"gateway/bus"
	"gateway/channels/gate"
	"gateway/channels/terminal"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/display"
	"gateway/session"
	"gateway/store"
)

// terminalAccount is the name of the terminal's account in every configuration.
const terminalAccount = "terminal"

// greeting is the first line of a chat on a terminal without screen control.
const greeting = "Talk to %s. /help shows the commands, /exit leaves.\n"

// historyFile returns the file with the input history of screens.
func historyFile(cfg *config.Config) string {
	return filepath.Join(cfg.Gateway.Home, "terminal-history")
}

// NewScreen returns a screen on standard input and output. Its input history is in the home.
func NewScreen(cfg *config.Config, opts terminal.ScreenOptions) (*terminal.Screen, error) {
	opts.History = historyFile(cfg)
	screen, err := terminal.NewScreen(os.Stdin, os.Stdout, opts)
	if errors.Is(err, terminal.ErrEmpty) {
		err = NewUsageError(err)
	}
	return screen, err
}

// A chat connects the person at the screen with this gateway.
type chat struct {
	g      *Gateway
	screen *terminal.Screen
	left   func() // called when the person leaves and the gateway keeps running
}

// run runs the chat. At its end it calls stop, unless the gateway keeps running.
func (c *chat) run(ctx context.Context, stop func()) error {
	if c.g.terminal == nil {
		stop()
		return UsageErrorf("the terminal is disabled in the configuration: set " +
			"channels.terminal.enabled = true to chat here")
	}
	if c.screen.Greets() {
		fmt.Fprintf(c.screen, greeting, c.g.name)
	}
	stays, err := c.screen.Chat(ctx, c.g.terminal.Dial)
	if err != nil || !stays {
		stop()
		return err
	}
	c.left()
	fmt.Fprintln(c.screen, "The gateway keeps running. Ctrl-C stops it.\n"+
		"gateway chat, in another terminal, opens the chat again.")
	return nil
}

// host provides the terminal's screens with the state of the gateway.
type host struct {
	g    *Gateway
	home string
}

// State implements [terminal.Host].
func (h host) State(ctx context.Context) (*terminal.State, error) {
	g := h.g
	// These reads are not of one moment. The screen asks again, so a small difference does no harm.
	q := g.db.Read(ctx)
	chat := bus.Address{Account: terminalAccount, Chat: terminal.MainChat}
	owes, owesErr := bus.HasUnfinished(q, chat)
	key := session.KeyOf(chat)
	// In this mode the terminal shows the conversation of the person who wrote there last.
	if g.settings.Load().Channels[terminalAccount].Session == string(bus.PerPerson) {
		last, ok, err := bus.LastMessage(q, chat)
		if err != nil {
			return nil, err
		}
		if ok {
			key = session.Of(last.Message)
		}
	}
	status, statusErr := g.dispatcher.Status(ctx, key,
		bus.InboundMessage{From: chat, Sender: bus.Sender{ID: terminal.Sender}})
	info, infoErr := session.ReadInfo(q, key)
	halt, haltErr := policy.GetHalt(q)
	pending, pendingErr := gate.People{}.Pending(q, time.Now())
	asks, asksErr := asks(q)
	unsent, err := bus.IsUnsent(q, chat) // read last: a question and its message are written together
	if err = errors.Join(statusErr, owesErr, infoErr, haltErr, pendingErr, asksErr, err); err != nil {
		return nil, err
	}
	s := &terminal.State{Asks: asks && !unsent, WillAsk: asks && unsent,
		Name: g.name, Version: BuildVersion(), Home: h.home,
		Model: status.Model, Demo: status.Model == demoModel, Context: info.Context,
		MaxContext: status.Context, Cost: info.Cost, Queue: status.Mode, Waiting: status.Waiting,
		Halted: halt != nil, Idle: !owes}
	for _, p := range pending {
		s.Strangers = append(s.Strangers, terminal.Stranger{Account: p.Account, Code: p.Code,
			Name: display.OneLine(strings.TrimSpace(p.Name + " " + p.Sender))})
	}
	for _, v := range g.supervisors {
		if v.Name() != terminalAccount {
			text, _ := v.State()
			s.Accounts = append(s.Accounts, terminal.Account{Name: v.Name(), Up: v.Up(),
				Text: strings.Map(printable, text)})
		}
	}
	for _, c := range menu() {
		s.Commands = append(s.Commands, terminal.Command{Name: c.Name, Help: c.Description})
	}
	return s, nil
}

// asks reports whether a question to the person at the terminal is open.
func asks(q store.Queryer) (bool, error) {
	list, err := question.ListOpen(q)
	if _, damaged := errors.AsType[*store.RowError](err); damaged {
		err = nil // reported elsewhere
	}
	return slices.ContainsFunc(list, func(q question.Question) bool {
		return q.Address.Account == terminalAccount && time.Now().Before(q.Expires)
	}), err
}

func printable(r rune) rune {
	if unicode.IsControl(r) {
		return ' '
	}
	return r
}

// maxFiles is the maximum number of file names for one completion.
const maxFiles = 50

// Files implements [terminal.Host] with the files of the workspace.
func (h host) Files(prefix string) (names []string) {
	dir, start := path.Split(prefix)
	entries, err := fs.ReadDir(h.g.home.workspace.FS(), path.Clean(dir))
	if err != nil {
		return nil // the folder does not exist
	}
	for _, e := range entries {
		name := e.Name()
		// Hidden files are offered only after the dot was typed.
		hidden := strings.HasPrefix(name, ".") && start == ""
		odd := func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) } // hard to type on a terminal
		if !strings.HasPrefix(name, start) || hidden || strings.ContainsFunc(name, odd) {
			continue
		}
		if name = dir + name; e.IsDir() {
			name += "/"
		}
		if names = append(names, name); len(names) == maxFiles {
			break
		}
	}
	return names
}
