package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gateway/agent/llm/openai/openaitest"
)

const (
	// most is the time limit of each part of the measurement, and startTime that of the start of a
	// gateway.
	most      = 2 * time.Minute
	startTime = 30 * time.Second
)

// workHome is the home of all gateways that answer people. They share it, because the keys of
// messages on Discord and WhatsApp come from the message's number in the database: the platforms
// would take the answers from a second database for repetitions.
const workHome = "work"

// A bench has the fake model, the fake platform, and the settings of the gateway between them.
type bench struct {
	binary, dir string
	model       *openaitest.Server
	modelServer *httptest.Server
	delay       atomic.Int64 // of the model, in nanoseconds
	modelTime   atomic.Int64 // time of the model for the newest call, in nanoseconds
	asked       atomic.Int64 // bytes of the requests to the model
	prompt      promptMeter
	platform    platform
	cpu         time.Duration // processor time of the last gateway
	floor       bool          // measure the floor instead of the gateway

	mu      sync.Mutex
	answers []answer      // since the last reset
	more    chan struct{} // receives a token when an answer arrives
}

// A platform is a fake chat platform. Its people have chats, which are numbered from 0.
type platform interface {
	// prepare prepares a home before its first start. environ returns the variables with which a
	// gateway uses the platform.
	prepare(ctx context.Context, home string) error
	environ() []string

	// ready waits until the gateway can receive messages.
	ready(ctx context.Context) error

	// say makes people write: size.messages messages in each of the first size.chats chats.
	say(ctx context.Context, size size, text string) error
	bursts() []size
	close()
}

// A size is the size of a burst.
type size struct{ chats, messages int }

// An answer is an answer that the platform got from the gateway.
type answer struct {
	chat int
	took time.Duration // time since the message; valid if only one message waits
}

func newBench(ctx context.Context, binary, dir, name string) (*bench, error) {
	b := &bench{binary: binary, dir: dir, more: make(chan struct{}, 1)}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	b.model = openaitest.New(func(openaitest.Request) openaitest.Reply {
		return openaitest.Reply{First: time.Duration(b.delay.Load()), Text: []string{
			"This is the answer to your message, ", "in two pieces."}}
	})
	b.model.Keep(0)
	b.modelServer = httptest.NewServer(http.HandlerFunc(b.serveModel))
	var err error
	switch name {
	case "discord":
		b.platform, err = newDiscord(ctx, b.heard)
	case "whatsapp":
		b.platform, err = newWhatsApp(ctx, b.heard)
	default:
		b.platform, err = newTelegram(ctx, b.heard)
	}
	return b, err
}

func (b *bench) close() {
	b.platform.close()
	b.model.Close()
	b.modelServer.Close()
}

// serveModel passes a request to the fake model and records how long the model took.
func (b *bench) serveModel(w http.ResponseWriter, r *http.Request) {
	b.asked.Add(max(r.ContentLength, 0))
	b.prompt.look(r)
	began := time.Now()
	b.model.ServeHTTP(w, r)
	b.modelTime.Store(int64(time.Since(began)))
}

// heard records an answer.
func (b *bench) heard(a answer) {
	b.mu.Lock()
	b.answers = append(b.answers, a)
	b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
}

// take returns the answers since the last call.
func (b *bench) take() []answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	answers := b.answers
	b.answers = nil
	return answers
}

// A process is a running gateway.
type process struct {
	cmd    *exec.Cmd
	output *bytes.Buffer
	began  time.Time
}

// start starts the gateway with a home and waits until the gateway is ready.
func (b *bench) start(ctx context.Context, home string) (*process, time.Duration, error) {
	home = filepath.Join(b.dir, home)
	if _, err := os.Stat(home); err != nil {
		if err := errors.Join(os.Mkdir(home, 0o700), b.platform.prepare(ctx, home)); err != nil {
			return nil, 0, err
		}
	}
	cmd := exec.CommandContext(ctx, b.binary)
	if b.floor {
		self, err := os.Executable()
		if err != nil {
			return nil, 0, err
		}
		cmd = exec.CommandContext(ctx, self, floorCommand)
	}
	p := &process{cmd: cmd, output: new(bytes.Buffer)}
	p.cmd.Env = append([]string{ // without the other variables of this process
		"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir, "GATEWAY_HOME=" + home,
		"OPENAI_API_KEY=bench", "OPENAI_BASE_URL=" + b.modelServer.URL + "/v1",
		"GATEWAY_AGENT__SLOTS=6000", "GATEWAY_LOG__LEVEL=warn",
	}, b.platform.environ()...)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.began = time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := b.platform.ready(ctx); err != nil {
		return nil, 0, errors.Join(fmt.Errorf("the gateway does not connect: %w", err), p.stop())
	}
	return p, time.Since(p.began), nil
}

// stop ends the gateway with a signal, as an operator does.
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

// with runs fn while a gateway runs with a home.
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
	slices.Sort(warm)
	r.Median, r.Max = percentile(warm, 50), percentile(warm, 100)
	return r, nil
}

func (b *bench) idle(ctx context.Context) (m memory, err error) {
	err = b.with(ctx, "idle", func(p *process) error {
		select {
		case <-time.After(3 * time.Second): // the gateway has finished its start
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

// settle makes the files of the work home an hour old, as they are in use. For some seconds after a
// change, the gateway reads documents and skills anew for each message, because the time of a file
// could hide a second change.
func (b *bench) settle(ctx context.Context) error {
	if b.floor {
		return nil
	}
	if err := b.with(ctx, workHome, func(*process) error { return nil }); err != nil {
		return err
	}
	home, old := filepath.Join(b.dir, workHome), time.Now().Add(-time.Hour)
	return filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() && !d.Type().IsRegular() {
			return err
		}
		return os.Chtimes(path, old, old)
	})
}

func (b *bench) latency(ctx context.Context, n int) (l latency, err error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	b.delay.Store(0)
	if err := b.settle(ctx); err != nil {
		return l, err
	}
	var took []time.Duration
	var before, after written
	var asked int64
	err = b.with(ctx, workHome, func(p *process) (err error) {
		b.take()
		asked = b.asked.Load()
		if before, err = p.written(); err != nil {
			return err
		}
		for i := range n {
			err := b.platform.say(ctx, size{1, 1}, "message "+strconv.Itoa(i))
			if err != nil {
				return err
			}
			answers, err := b.wait(ctx, 1)
			if err != nil {
				return err
			}
			took = append(took, answers[0].took-time.Duration(b.modelTime.Load()))
		}
		after, err = p.written()
		return err
	})
	if err != nil {
		return l, err
	}
	slices.Sort(took)
	return latency{Messages: n, P50: percentile(took, 50), P95: percentile(took, 95),
		P99: percentile(took, 99), Written: (after.bytes - before.bytes) / 1000 / float64(n),
		Writes: (after.calls - before.calls) / float64(n),
		Asked:  float64(b.asked.Load()-asked) / 1000 / float64(n), CPU: ms(b.cpu) / float64(n)}, nil
}

// wait returns the next n answers.
func (b *bench) wait(ctx context.Context, n int) ([]answer, error) {
	var all []answer
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

func (b *bench) burst(ctx context.Context, n size, model time.Duration) (r result, err error) {
	b.delay.Store(int64(model))
	all := n.chats * n.messages
	r = result{Chats: n.chats, Messages: n.messages, Model: ms(model)}
	err = b.with(ctx, workHome, func(p *process) error {
		b.take()
		waiting, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		began := time.Now()
		if err := b.platform.say(waiting, n, "hello"); err != nil {
			return err
		}
		answers, err := b.wait(waiting, all)
		if err != nil && ctx.Err() != nil {
			return err
		}
		last := time.Since(began)
		if r.PeakRSS, err = p.memory("VmHWM"); err != nil {
			return err
		}
		answered := make(map[int]int)
		for _, a := range answers {
			answered[a.chat]++
		}
		r.Lost = all
		for _, times := range answered {
			r.Lost -= min(times, n.messages)
			r.Doubled += max(times-n.messages, 0)
		}
		r.Last, r.Rate = ms(last), float64(all-r.Lost)/last.Seconds()
		return nil
	})
	r.CPU = ms(b.cpu) / float64(all)
	return r, err
}
