package config

import (
	"fmt"
	"net"
	"strings"
	"time"

	"gateway/cmd/gateway/internal/hooks"
	"gateway/cmd/gateway/internal/ops"
	"gateway/store/plaintext"
)

// Schedule has the limits of jobs.
type Schedule struct {
	MaxJobs  int           `key:"max_jobs" min:"1"`    // maximum active jobs per person
	MinEvery time.Duration `key:"min_every" min:"10s"` // minimum interval of a job
}

// Heartbeat says how often the agent checks HEARTBEAT.md by itself.
type Heartbeat struct {
	Every time.Duration `key:"every" min:"0s"`   // 0: never
	Model string        `key:"model" live:"yes"` // a key of Config.Models; "": agent.model
}

// HTTP has the settings of the server for health, metrics, profiles and hooks.
type HTTP struct {
	Listen string `key:"listen"` // host:port; "": no server
	Token  Secret `key:"token"`  // empty: a new token at each start, in http.json
}

// Retention says how long finished data is kept; 0 means for ever.
type Retention struct {
	Messages    time.Duration `key:"messages" min:"0s"`                     // after the answer
	Transcripts time.Duration `key:"transcripts" min:"0s"`                  // of idle conversations
	History     time.Duration `key:"history" min:"0s"`                      // notes, after Dream
	Offloads    time.Duration `key:"offloads" min:"0s"`                     // long tool results
	Runs        time.Duration `key:"runs" min:"0s"`                         // of jobs
	Usage       time.Duration `key:"usage" min:"0s"`                        // usage counts per day
	Audit       time.Duration `key:"audit" min:"0s"`                        // audit entries
	MaxTotalMB  int           `key:"max_total_mb" min:"0" max:"1000000000"` // database; 0: no limit
}

// A Hook makes messages to the agent from posts to /hooks/NAME.
type Hook struct {
	Enabled  bool   `key:"enabled"`
	To       string `key:"to"`     // account/chat or account/chat/thread that gets the answer
	Secret   Secret `key:"secret"` // empty only while Enabled is false
	Auth     string `key:"auth" allowed:"bearer hmac standard"`
	Header   string `key:"header"`                                // header with the HMAC signature
	Template string `key:"template"`                              // "": the body unchanged
	Role     string `key:"role" allowed:"guest user admin owner"` // role of the message
	Session  string `key:"session" allowed:"own chat"`
	Rate     int    `key:"rate" min:"1"`                    // posts per minute
	MaxKB    int    `key:"max_kb" min:"1" max:"1000000000"` // maximum size of a post
}

// Address splits To into its parts.
func (h Hook) Address() (account, chat, thread string) {
	account, rest, _ := strings.Cut(h.To, "/")
	chat, thread, _ = strings.Cut(rest, "/")
	return account, chat, thread
}

// minSecret is the minimum length, in bytes, of a secret that gives access from outside.
const minSecret = 16

// validateOps reports mistakes in [heartbeat], [retention], [http] and [hooks].
func (v validator) validateOps() {
	c := v.cfg
	if e := c.Heartbeat.Every; e != 0 && e < time.Minute {
		v.report([]string{"heartbeat", "every"}, "want at least 1m, or 0 for never")
	}
	v.validateRetention(c.Retention)
	v.validateHTTP(c.HTTP)
	for name, h := range Sorted(c.Hooks) {
		v.validateHook(name, h)
	}
}

// validateRetention rejects retention times so short that data in use could be removed.
func (v validator) validateRetention(r Retention) {
	// Telegram redelivers updates for 24 hours if it believes that we did not get them. The row
	// of a message shows that it was answered.
	if r.Messages != 0 && r.Messages < 48*time.Hour {
		v.report([]string{"retention", "messages"}, "want at least 48h, because platforms deliver "+
			"messages again; or 0 for ever")
	}
	// A conversation is summarised when it is idle, after the summaries of other conversations.
	for key, keep := range map[string]time.Duration{"transcripts": r.Transcripts,
		"history": r.History} {
		if keep != 0 && keep < 24*time.Hour {
			v.report([]string{"retention", key}, "want at least 24h, or 0 for ever")
		}
	}
}

// validateHTTP reports mistakes in [http]. A server that others can reach needs a configured token,
// since the random one of each start is known only on this machine.
func (v validator) validateHTTP(h HTTP) {
	token := h.Token.Reveal()
	if token != "" && len(token) < minSecret {
		v.report([]string{"http", "token"}, fmt.Sprintf("want at least %d characters", minSecret))
	}
	if h.Listen == "" {
		return
	}
	host, err := listenHost(h.Listen)
	if err != nil {
		v.report([]string{"http", "listen"}, `want an address such as "127.0.0.1:8790", or ""`)
		return
	}
	if !ops.IsLoopback(host) && token == "" {
		v.report([]string{"http", "token"}, fmt.Sprintf(
			"others can reach %s: want a token here, or a listen address on 127.0.0.1", h.Listen))
	}
}

// listenHost returns the host of an address to listen on. The port must be a number up to 65535, or
// the name of a service.
func listenHost(address string) (host string, err error) {
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	return host, err
}

// headerName matches the name of a header. No post has a header with another name.
var headerName = plaintext.Pattern("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// validateHook reports mistakes in [hooks.NAME]. The account must be enabled, since the answer goes
// there.
func (v validator) validateHook(name string, h Hook) {
	if !h.Enabled {
		return
	}
	path := func(key string) []string { return []string{"hooks", name, key} }
	account, chat, _ := h.Address()
	ch, ok := v.cfg.Channels[account]
	switch {
	case chat == "":
		v.report(path("to"), `want the conversation that gets the answer, as "account/chat"`)
	case !ok:
		v.report(path("to"), noAccount(account, v.cfg))
	case !ch.Enabled:
		v.report(path("to"), fmt.Sprintf("[channels.%s] is switched off", account))
	}
	if len(h.Secret.Reveal()) < minSecret {
		v.report(path("secret"), fmt.Sprintf(
			`want at least %d characters, best as "env:NAME" or "file:PATH"`, minSecret))
	} else if h.Auth == string(hooks.Standard) {
		if _, err := hooks.ParseKey(h.Secret.Reveal()); err != nil {
			v.report(path("secret"), err.Error()+", as the sender of Standard Webhooks shows it")
		}
	}
	if h.Auth == string(hooks.HMAC) && !headerName().MatchString(h.Header) {
		v.report(path("header"), `want the name of the header with the signature, such as `+
			`"X-Hub-Signature-256"`)
	}
	if _, err := hooks.ParseTemplate(h.Template); err != nil {
		v.report(path("template"), err.Error())
	}
}
