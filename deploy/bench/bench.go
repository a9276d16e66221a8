package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/telegram/telegramtest"
)

const (
	token = "1234567:bench"
	// most bounds each part of the measurement.
	most = 2 * time.Minute
)

// A bench is the two fakes and the gateway between them.
type bench struct {
	binary, dir string
	model       *openaitest.Server
	modelServer *httptest.Server
	delay       atomic.Int64 // of the model, in nanoseconds
	modelTime   atomic.Int64 // that the newest call took within the model, in nanoseconds
	telegram    *telegramtest.Server
	telegramURL string
	cpu         time.Duration // that the last gateway used in all

	mu   sync.Mutex
	sent []telegramtest.Sent // since the last reset
	more chan struct{}       // rung by each sent message
}

func newBench(ctx context.Context, binary, dir string) (*bench, error) {
	b := &bench{binary: binary, dir: dir, more: make(chan struct{}, 1)}
	b.model = openaitest.New(func(openaitest.Request) openaitest.Reply {
		return openaitest.Reply{First: time.Duration(b.delay.Load()), Text: []string{
			"This is the answer to your message, ", "in two pieces."}}
	})
	b.model.Keep(0)
	b.modelServer = httptest.NewServer(http.HandlerFunc(b.serveModel))
	b.telegram = telegramtest.New(token, &telegramtest.Options{Keep: 4, OnSend: b.onSend})
	var err error
	b.telegramURL, err = b.telegram.Start(ctx)
	return b, err
}

func (b *bench) close() {
	b.telegram.Close()
	b.model.Close()
	b.modelServer.Close()
}

// serveModel answers as the model and notes how long that took.
func (b *bench) serveModel(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	b.model.ServeHTTP(w, r)
	b.modelTime.Store(int64(time.Since(began)))
}

func (b *bench) onSend(s telegramtest.Sent) {
	b.mu.Lock()
	b.sent = append(b.sent, s)
	b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
}

// take returns what was sent since the last call.
func (b *bench) take() []telegramtest.Sent {
	b.mu.Lock()
	defer b.mu.Unlock()
	sent := b.sent
	b.sent = nil
	return sent
}

// A process is a running gateway.
type process struct {
	cmd    *exec.Cmd
	output *bytes.Buffer
	began  time.Time
}

// start runs the gateway on a home and waits until it polls.
func (b *bench) start(ctx context.Context, home string) (*process, time.Duration, error) {
	p := &process{cmd: exec.CommandContext(ctx, b.binary), output: new(bytes.Buffer)}
	p.cmd.Env = append(os.Environ(),
		"GATEWAY_HOME="+filepath.Join(b.dir, home),
		"TELEGRAM_BOT_TOKEN="+token,
		"GATEWAY_CHANNELS__TELEGRAM__API_URL="+b.telegramURL,
		"GATEWAY_CHANNELS__TELEGRAM__ACCESS=open",
		"GATEWAY_CHANNELS__TELEGRAM__RATE_LIMIT=off",
		"OPENAI_API_KEY=bench", "OPENAI_BASE_URL="+b.modelServer.URL+"/v1",
		"GATEWAY_AGENT__SLOTS=6000", "GATEWAY_LOG__LEVEL=warn",
	)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.began = time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := b.telegram.Wait(ctx, b.telegram.Polling); err != nil {
		return nil, 0, errors.Join(fmt.Errorf("the gateway does not poll: %w", err), p.stop())
	}
	return p, time.Since(p.began), nil
}

// stop ends the gateway as an operator does.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("gateway: %w\n%s", err, p.output)
	}
	return nil
}

// memory reads a size of the process, in MB.
func (p *process) memory(field string) (float64, error) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/status")
	if err != nil {
		return 0, fmt.Errorf("memory can be measured on Linux only: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			kb, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(
				strings.TrimSpace(value), "kB")), 64)
			return kb * 1024 / 1e6, err
		}
	}
	return 0, fmt.Errorf("no %s in /proc", field)
}

// with runs fn beside a gateway on a home.
func (b *bench) with(ctx context.Context, home string, fn func(*process) error) error {
	p, _, err := b.start(ctx, home)
	if err != nil {
		return err
	}
	err = errors.Join(fn(p), p.stop())
	b.cpu = p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
	return err
}

func (b *bench) ready(ctx context.Context, runs int) (ready, error) {
	r := ready{Runs: runs}
	var warm []time.Duration
	for i := range runs + 1 {
		p, took, err := b.start(ctx, "ready")
		if err != nil {
			return r, err
		}
		if err := p.stop(); err != nil {
			return r, err
		}
		if i == 0 {
			r.Cold = ms(took)
		} else {
			warm = append(warm, took)
		}
	}
	sorted(warm)
	r.Median, r.Max = percentile(warm, 50), percentile(warm, 100)
	return r, nil
}

func (b *bench) idle(ctx context.Context) (m memory, err error) {
	err = b.with(ctx, "idle", func(p *process) error {
		select {
		case <-time.After(3 * time.Second): // the start is over
		case <-ctx.Done():
			return ctx.Err()
		}
		if m.RSS, err = p.memory("VmRSS"); err != nil {
			return err
		}
		m.Anonymous, err = p.memory("RssAnon")
		return err
	})
	return m, err
}

func (b *bench) latency(ctx context.Context, n int) (l latency, err error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	b.delay.Store(0)
	var took []time.Duration
	err = b.with(ctx, "latency", func(*process) error {
		b.take()
		for i := range n {
			b.telegram.Say(1, 1, "message "+strconv.Itoa(i))
			sent, err := b.wait(ctx, 1)
			if err != nil {
				return err
			}
			model := time.Duration(b.modelTime.Load())
			took = append(took, sent[0].Received.Sub(sent[0].Served)-model)
		}
		return nil
	})
	if err != nil {
		return l, err
	}
	sorted(took)
	return latency{Messages: n, P50: percentile(took, 50), P95: percentile(took, 95),
		P99: percentile(took, 99)}, nil
}

// wait returns the next n messages.
func (b *bench) wait(ctx context.Context, n int) ([]telegramtest.Sent, error) {
	var all []telegramtest.Sent
	for {
		all = append(all, b.take()...)
		if len(all) >= n {
			return all, nil
		}
		select {
		case <-b.more:
		case <-ctx.Done():
			return all, fmt.Errorf("%d of %d answers: %w", len(all), n, ctx.Err())
		}
	}
}

func (b *bench) burst(ctx context.Context, chats int, model time.Duration) (r result, err error) {
	b.delay.Store(int64(model))
	r = result{Chats: chats, Model: ms(model)}
	home := fmt.Sprintf("burst-%d-%d", chats, model.Milliseconds())
	err = b.with(ctx, home, func(p *process) error {
		b.take()
		var burst []telegramtest.Message
		for i := range chats {
			burst = append(burst, telegramtest.Message{User: int64(1000 + i), Text: "hello"})
		}
		waiting, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		began := time.Now()
		b.telegram.Deliver(burst...)
		sent, err := b.wait(waiting, chats)
		if err != nil && ctx.Err() != nil {
			return err
		}
		last := time.Since(began)
		if r.PeakRSS, err = p.memory("VmHWM"); err != nil {
			return err
		}
		answered := make(map[int64]bool)
		for _, s := range sent {
			if answered[s.Chat] {
				r.Doubled++
			}
			answered[s.Chat] = true
		}
		r.Lost = chats - len(answered)
		r.Last, r.Rate = ms(last), float64(len(answered))/last.Seconds()
		return nil
	})
	r.CPU = ms(b.cpu) / float64(chats)
	return r, err
}
