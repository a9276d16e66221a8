package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// floorCommand makes the bench command a floor: a gateway that only forwards. It stores nothing,
// has no conversations, and sends the model only the message. Its figures are those of the two
// fakes and the machine.
const floorCommand = "floor"

// A floorGateway forwards messages from Telegram to a model, and the answers back.
type floorGateway struct {
	telegram, model string // URLs
	client          *http.Client
}

// runFloor forwards until ctx ends. Its settings are the gateway's.
func runFloor(ctx context.Context) error {
	transport := &http.Transport{MaxIdleConns: 1024, MaxIdleConnsPerHost: 512}
	g := &floorGateway{
		telegram: os.Getenv("GATEWAY_CHANNELS__TELEGRAM__API_URL") + "/bot" +
			os.Getenv("TELEGRAM_BOT_TOKEN") + "/",
		model:  os.Getenv("OPENAI_BASE_URL") + "/chat/completions",
		client: &http.Client{Transport: transport},
	}
	var forwards sync.WaitGroup
	defer forwards.Wait()
	for offset := int64(0); ctx.Err() == nil; {
		var updates []struct {
			ID      int64 `json:"update_id"`
			Message struct {
				Text string
				Chat struct{ ID int64 }
			}
		}
		err := g.call(ctx, "getUpdates", url.Values{"offset": {strconv.FormatInt(offset, 10)},
			"timeout": {"50"}}, &updates)
		if err != nil && ctx.Err() == nil {
			return err
		}
		for _, u := range updates {
			offset = u.ID + 1
			forwards.Go(func() {
				if err := g.forward(ctx, u.Message.Chat.ID, u.Message.Text); err != nil {
					fmt.Fprintln(os.Stderr, "floor:", err)
				}
			})
		}
	}
	return nil
}

// call calls a method of Telegram's.
func (g *floorGateway) call(
	ctx context.Context, method string, params url.Values, result any,
) error {
	body, err := g.post(ctx, g.telegram+method, "application/x-www-form-urlencoded", params.Encode())
	if err != nil {
		return err
	}
	defer body.Close()
	text, err := io.ReadAll(body) // read to the end, so that the connection is reused
	if err != nil {
		return err
	}
	return json.Unmarshal(text, &struct{ Result any }{result})
}

// forward asks the model for an answer and sends it.
func (g *floorGateway) forward(ctx context.Context, chat int64, text string) error {
	quoted, err := json.Marshal(text)
	if err != nil {
		return err
	}
	body, err := g.post(ctx, g.model, "application/json", `{"model":"m","stream":true,`+
		`"stream_options":{"include_usage":true},`+
		`"messages":[{"role":"user","content":`+string(quoted)+`}]}`)
	if err != nil {
		return err
	}
	answer, err := streamedText(body)
	if err = errors.Join(err, body.Close()); err != nil {
		return err
	}
	return g.call(ctx, "sendMessage", url.Values{"chat_id": {strconv.FormatInt(chat, 10)},
		"text": {answer}}, new(json.RawMessage))
}

// streamedText returns the text of a stream of the model.
func streamedText(r io.Reader) (string, error) {
	var text strings.Builder
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok || string(data) == "[DONE]" {
			continue
		}
		var frame struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if err := json.Unmarshal(data, &frame); err != nil {
			return "", err
		}
		for _, c := range frame.Choices {
			text.WriteString(c.Delta.Content)
		}
	}
	return text.String(), lines.Err()
}

// post returns the body of the answer to a request.
func (g *floorGateway) post(ctx context.Context, to, kind, body string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Authorization", "Bearer bench")
	resp, err := g.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		said, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return nil, errors.Join(fmt.Errorf("%s: %s", resp.Status, said), err, resp.Body.Close())
	}
	return resp.Body, nil
}

// A floor has the figures of the floor gateway from the same run, and the ratios of the gateway's
// figures to them. Both depend on the machine and its load.
type floor struct {
	Latency latency  `json:"latency"`
	Bursts  []result `json:"bursts"`
	Ratios  ratios   `json:"ratios"`
}

// ratios are the gateway's figures divided by the floor's.
type ratios struct {
	P50    float64       `json:"p50"`
	P99    float64       `json:"p99"`
	Bursts []burstRatios `json:"bursts"`
}

type burstRatios struct {
	Chats   int     `json:"chats"`
	Model   float64 `json:"model_ms"`
	Rate    float64 `json:"messages_per_s"`
	CPU     float64 `json:"cpu_ms_per_message"`
	PeakRSS float64 `json:"peak_rss_mb"`
}

// measureFloor measures the floor after s.
func (b *bench) measureFloor(ctx context.Context, s *section, messages int) (*floor, error) {
	b.floor = true
	defer func() { b.floor = false }()
	f := new(floor)
	var err error
	if f.Latency, err = b.latency(ctx, messages); err != nil {
		return nil, err
	}
	f.Ratios.P50 = s.Latency.P50 / f.Latency.P50
	f.Ratios.P99 = s.Latency.P99 / f.Latency.P99
	for _, r := range s.Bursts {
		model := time.Duration(r.Model * float64(time.Millisecond))
		of, err := b.burst(ctx, size{r.Chats, r.Messages}, model)
		if err != nil {
			return nil, err
		}
		f.Bursts = append(f.Bursts, of)
		f.Ratios.Bursts = append(f.Ratios.Bursts, burstRatios{Chats: r.Chats, Model: r.Model,
			Rate: r.Rate / of.Rate, CPU: r.CPU / of.CPU, PeakRSS: r.PeakRSS / of.PeakRSS})
	}
	return f, nil
}
