// The bench command measures the gateway on each platform: the time until it is ready, its memory,
// the time that it adds to the model's, and how it handles bursts.
//
//	go run ./deploy/bench
//	go run ./deploy/bench -platform whatsapp
//
// It builds the gateway, runs it as a separate process that makes every step durable, and simulates
// the platform and the model over loopback. It prints one JSON object with a section for each
// platform. The figures depend on the machine, which runs both sides: on WhatsApp that includes the
// encryption on the phones. For Telegram it therefore also measures a floor in the same run, a
// program that only forwards, and prints the ratios of the gateway's figures to the floor's.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"time"
)

// A section has the figures for a platform. Times are in milliseconds, memory is in MB (10^6
// bytes).
type section struct {
	Ready   ready    `json:"ready"`
	Idle    memory   `json:"idle"`
	Latency latency  `json:"latency"`
	Prompt  prompt   `json:"prompt"`
	Bursts  []result `json:"bursts"`
	Kills   *kills   `json:"kills,omitempty"`
	Floor   *floor   `json:"floor,omitempty"`
}

// ready is the time from the start of the process until it can receive messages: until its first
// getUpdates call on Telegram, and the beginning of its session on Discord and WhatsApp.
type ready struct {
	Cold   float64 `json:"cold_ms"` // with an empty home; on WhatsApp with the keys only
	Median float64 `json:"warm_median_ms"`
	Max    float64 `json:"warm_max_ms"`
	Runs   int     `json:"warm_runs"`
}

// memory is the memory of the gateway's process while it is connected and nobody writes.
type memory struct {
	RSS       float64 `json:"rss_mb"`
	Anonymous float64 `json:"anonymous_mb"` // the rest are pages of the binary
}

// latency is the time from when the platform serves a message until it gets the answer, without the
// time of the model. It is measured for one chat, one message after another, in a home that has not
// changed lately. On WhatsApp it begins when a person sends the message and ends when they see the
// answer, because the server can't read either.
type latency struct {
	Messages int     `json:"messages"`
	P50      float64 `json:"p50_ms"`
	P95      float64 `json:"p95_ms"`
	P99      float64 `json:"p99_ms"`
	Written  float64 `json:"written_kb_per_message"` // to files and connections, in 1000 bytes
	Writes   float64 `json:"writes_per_message"`     // system calls
	Asked    float64 `json:"asked_kb_per_message"`   // part of it: to the model, in 1000 bytes
	CPU      float64 `json:"cpu_ms_per_message"`     // of the gateway alone, including its start
}

// A result has the figures of a burst: messages from many chats at once.
type result struct {
	Chats    int     `json:"chats"`
	Messages int     `json:"messages_per_chat"`
	Model    float64 `json:"model_ms"`
	Last     float64 `json:"last_answer_ms"` // from the beginning of the burst to the last answer
	Rate     float64 `json:"messages_per_s"`
	CPU      float64 `json:"cpu_ms_per_message"` // of the gateway alone, including its start
	PeakRSS  float64 `json:"peak_rss_mb"`
	Lost     int     `json:"lost"`
	Doubled  int     `json:"doubled"`
}

func main() {
	binary := flag.String("gateway", "", "binary to measure (default: it is built); "+
		"for WhatsApp it must have the build tag faults")
	only := flag.String("platform", "", "telegram, discord or whatsapp (default: all)")
	runs := flag.Int("runs", 10, "warm starts")
	messages := flag.Int("messages", 300, "messages of the latency measurement")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if flag.Arg(0) == floorCommand {
		if err := runFloor(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "floor:", err)
			os.Exit(1)
		}
		return
	}
	r, err := measureAll(ctx, *binary, *only, *runs, *messages)
	if err == nil {
		out := json.NewEncoder(os.Stdout)
		out.SetIndent("", "  ")
		err = out.Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// measureAll measures on the platform only, or on all platforms if only is "".
func measureAll(
	ctx context.Context, binary, only string, runs, messages int,
) (report map[string]*section, err error) {
	names := []string{"telegram", "discord", "whatsapp"}
	if only != "" {
		if !slices.Contains(names, only) {
			return nil, fmt.Errorf("no platform %q", only)
		}
		names = []string{only}
	}
	dir, err := os.MkdirTemp("", "gateway-bench")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if binary == "" {
		binary = filepath.Join(dir, "gateway")
		if err := build(ctx, binary); err != nil {
			return nil, err
		}
	}
	report = make(map[string]*section)
	for _, name := range names {
		report[name], err = measure(ctx, binary, filepath.Join(dir, name), name, runs, messages)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return report, nil
}

// build builds the gateway like a release, but with the tag "faults", because a release accepts
// only WhatsApp's own server. Otherwise the tag adds a comparison of strings a few times per
// message.
func build(ctx context.Context, path string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w",
		"-tags", "faults", "-o", path, "./cmd/gateway")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build (run it in the repository): %w\n%s", err, out)
	}
	return nil
}

// measure measures on one platform.
func measure(
	ctx context.Context, binary, dir, name string, runs, messages int,
) (s *section, err error) {
	b, err := newBench(ctx, binary, dir, name)
	if err != nil {
		return nil, err
	}
	defer b.close()
	s = new(section)
	if s.Ready, err = b.ready(ctx, runs); err != nil {
		return nil, fmt.Errorf("ready: %w", err)
	}
	if s.Idle, err = b.idle(ctx); err != nil {
		return nil, fmt.Errorf("idle: %w", err)
	}
	if s.Latency, err = b.latency(ctx, messages); err != nil {
		return nil, fmt.Errorf("latency: %w", err)
	}
	if s.Prompt = b.prompt.size; b.prompt.err != nil {
		return nil, fmt.Errorf("prompt: %w", b.prompt.err)
	}
	for _, model := range []time.Duration{0, 500 * time.Millisecond} {
		for _, size := range b.platform.bursts() {
			res, err := b.burst(ctx, size, model)
			if err != nil {
				return nil, fmt.Errorf("burst of %d chats: %w", size.chats, err)
			}
			s.Bursts = append(s.Bursts, res)
		}
	}
	if name == "telegram" {
		if s.Kills, err = b.kills(ctx); err != nil {
			return nil, fmt.Errorf("kills: %w", err)
		}
		if s.Floor, err = b.measureFloor(ctx, s, messages); err != nil {
			return nil, fmt.Errorf("floor: %w", err)
		}
	}
	return s, nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// percentile returns the value that p percent of the sorted list do not exceed.
func percentile(list []time.Duration, p int) float64 {
	return ms(list[min(len(list)*p/100, len(list)-1)])
}
