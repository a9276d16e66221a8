package wire

import (
	"net/http"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	date := time.Date(2026, 2, 16, 12, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		header http.Header
		want   time.Duration
	}{
		"none":     {http.Header{}, 0},
		"seconds":  {http.Header{"Retry-After": {"9"}}, 9 * time.Second},
		"fraction": {http.Header{"Retry-After": {"0.5"}}, 500 * time.Millisecond},
		"milliseconds": {http.Header{"Retry-After-Ms": {"20"}, "Retry-After": {"9"}},
			20 * time.Millisecond},
		"negative":  {http.Header{"Retry-After": {"-1"}}, 0},
		"absurd":    {http.Header{"Retry-After": {"1e300"}}, 24 * time.Hour},
		"NaN":       {http.Header{"Retry-After": {"NaN"}}, 0},
		"no number": {http.Header{"Retry-After": {"soon"}}, 0},
		"date": {http.Header{"Date": {date.Format(http.TimeFormat)},
			"Retry-After": {date.Add(time.Minute).Format(http.TimeFormat)}}, time.Minute},
		"past": {http.Header{"Date": {date.Format(http.TimeFormat)},
			"Retry-After": {date.Add(-time.Minute).Format(http.TimeFormat)}}, 0},
		"absurd date": {http.Header{"Date": {date.Format(http.TimeFormat)},
			"Retry-After": {date.AddDate(70, 0, 0).Format(http.TimeFormat)}}, 24 * time.Hour},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := retryAfter(tt.header); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestRetryAfterInWords(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"Please try again in 7.66s. Visit": 7660 * time.Millisecond,
		"try again in 1m20s":               80 * time.Second,
		"Please retry in 20ms":             20 * time.Millisecond,
		"try again in 99999h0m0s":          24 * time.Hour,
		"try again in a while":             0,
		// Azure and Moonshot. See https://github.com/dyad-sh/dyad/issues/1849 and
		// https://github.com/jasonacox/TinyLLM/issues/17.
		"have exceeded token rate limit. Please retry after 26 seconds. Please go": 26 * time.Second,
		"max RPM: 3, please try again after 1 seconds":                             time.Second,
		"Please retry after 86400 seconds.":                                        0,
		"":                                                                         0,
	} {
		if got := askedToWait(text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

// An error in an unknown form has its whole body as its text.
func TestMessages(t *testing.T) {
	for _, body := range []string{
		// FastAPI, which many servers of models use.
		`{"detail":[{"type":"extra_forbidden","loc":["body","messages",2,"x"],"msg":"Extra inputs ` +
			`are not permitted","input":"y"}]}`,
		// Cloudflare.
		`{"success":false,"errors":[{"code":7000,"message":"No route for that URI"}]}`,
		`{"error":{"reason":"why"}}`,
	} {
		if got := ParseFailure([]byte(body)).Message; got != body {
			t.Errorf("got %s, want %s", got, body)
		}
	}
}
