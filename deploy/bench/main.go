// The bench command measures the gateway: how soon it is ready, what memory it takes, what it
// adds to the time of the model, and how it takes a burst.
//
//	go run ./deploy/bench
//
// It builds the gateway, runs it as a process of its own with every step durable, and plays
// Telegram and the model to it over loopback. It prints one JSON object. The figures hold for
// the machine that they were measured on, which has both sides of the wire to run.
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

// A report is what is printed. Times are in milliseconds, memory is in MB (10^6 bytes).
type report struct {
	Ready   ready    `json:"ready"`
	Idle    memory   `json:"idle"`
	Latency latency  `json:"latency"`
	Bursts  []result `json:"bursts"`
}

// ready is the time from the start of the process to its first getUpdates call.
type ready struct {
	Cold   float64 `json:"cold_ms"` // with an empty home
	Median float64 `json:"warm_median_ms"`
	Max    float64 `json:"warm_max_ms"`
	Runs   int     `json:"warm_runs"`
}

// memory is that of the gateway's process.
type memory struct {
	RSS       float64 `json:"rss_mb"`
	Anonymous float64 `json:"anonymous_mb"` // the rest is the binary's own pages
}

// latency is the time from an update being served to sendMessage being received, less the time
// that the model had its request, for one chat in sequence.
type latency struct {
	Messages int     `json:"messages"`
	P50      float64 `json:"p50_ms"`
	P95      float64 `json:"p95_ms"`
	P99      float64 `json:"p99_ms"`
}

// A result is that of a burst: one message from each of many chats at once.
type result struct {
	Chats   int     `json:"chats"`
	Model   float64 `json:"model_ms"`
	Last    float64 `json:"last_answer_ms"` // from the burst to the last answer
	Rate    float64 `json:"messages_per_s"`
	CPU     float64 `json:"cpu_ms_per_message"` // of the gateway alone, its start included
	PeakRSS float64 `json:"peak_rss_mb"`
	Lost    int     `json:"lost"`
	Doubled int     `json:"doubled"`
}

func main() {
	binary := flag.String("gateway", "", "binary to measure (default: it is built)")
	runs := flag.Int("runs", 10, "warm starts")
	messages := flag.Int("messages", 300, "messages of the latency measurement")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r, err := measure(ctx, *binary, *runs, *messages)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	if err := out.Encode(r); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, binary string, runs, messages int) (r *report, err error) {
	dir, err := os.MkdirTemp("", "gateway-bench")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if binary == "" {
		binary = filepath.Join(dir, "gateway")
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w",
			"-o", binary, "./cmd/gateway")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build (run it in the repository): %w\n%s", err, out)
		}
	}
	b, err := newBench(ctx, binary, dir)
	if err != nil {
		return nil, err
	}
	defer b.close()
	r = new(report)
	if r.Ready, err = b.ready(ctx, runs); err != nil {
		return nil, fmt.Errorf("ready: %w", err)
	}
	if r.Idle, err = b.idle(ctx); err != nil {
		return nil, fmt.Errorf("idle: %w", err)
	}
	if r.Latency, err = b.latency(ctx, messages); err != nil {
		return nil, fmt.Errorf("latency: %w", err)
	}
	for _, model := range []time.Duration{0, 500 * time.Millisecond} {
		for _, chats := range []int{200, 1000, 5000} {
			res, err := b.burst(ctx, chats, model)
			if err != nil {
				return nil, fmt.Errorf("burst of %d: %w", chats, err)
			}
			r.Bursts = append(r.Bursts, res)
		}
	}
	return r, nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// percentile returns the value that p percent of the sorted list do not exceed.
func percentile(list []time.Duration, p int) float64 {
	return ms(list[min(len(list)*p/100, len(list)-1)])
}

func sorted(list []time.Duration) []time.Duration {
	slices.Sort(list)
	return list
}
