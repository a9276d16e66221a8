package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"time"
)

// Share returns c as JSON for other processes that use the same home. It omits credentials, and
// URLs and request fields that may contain one.
func (c *Config) Share() []byte {
	shared := *c
	shared.MCP, shared.Models, shared.Channels = maps.Clone(c.MCP), maps.Clone(c.Models),
		maps.Clone(c.Channels)
	for name, s := range shared.MCP {
		s.URL = "" // may contain tokens
		shared.MCP[name] = s
	}
	for name, m := range shared.Models {
		m.BaseURL, m.Body = withoutUser(m.BaseURL), nil
		shared.Models[name] = m
	}
	for name, ch := range shared.Channels {
		ch.APIURL, ch.WebhookURL = withoutUser(ch.APIURL), withoutUser(ch.WebhookURL)
		shared.Channels[name] = ch
	}
	shared.Transcription.BaseURL = withoutUser(c.Transcription.BaseURL)
	shared.Media.Speech.BaseURL = withoutUser(c.Media.Speech.BaseURL)
	shared.Media.Images.BaseURL = withoutUser(c.Media.Images.BaseURL)
	shared.Web.SearchURL = withoutUser(c.Web.SearchURL)
	text, err := json.Marshal(shared)
	if err != nil {
		panic("config: share: " + err.Error()) // can't happen: all fields can be encoded
	}
	return text
}

// withoutUser returns a URL, or "" if it contains a user or a password.
func withoutUser(address string) string {
	if u, err := url.Parse(address); err != nil || u.User != nil {
		return ""
	}
	return address
}

// Shared returns the configuration that another process wrote with [Config.Share]. Its secrets
// are empty.
func Shared(text []byte) (*Config, error) {
	var c Config
	err := json.Unmarshal(text, &c)
	if err == nil {
		c.Gateway.Location, err = time.LoadLocation(c.Gateway.Timezone)
	}
	if err != nil {
		return nil, fmt.Errorf("config: shared: %w", err)
	}
	return &c, nil
}

// CopyMistakes copies the mistakes of read into c. c is the configuration of a running gateway,
// and read is the one that this process has read.
func (c *Config) CopyMistakes(read *Config) { c.mistakes = read.mistakes }
