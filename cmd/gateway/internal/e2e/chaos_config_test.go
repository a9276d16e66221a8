//go:build unix

package e2e

import (
	"fmt"
	"regexp"
	"syscall"

	"gateway/agent/pool"
)

// Settings that change while people talk to the gateway.
var (
	chaosMode      = regexp.MustCompile(`queue_mode = "[a-z]*"`)
	chaosStreaming = regexp.MustCompile(`streaming = [a-z]*`)
)

// vary changes the configuration. Each account shows answers while they grow, or does not.
func (c *chaos) vary() {
	c.calmDisk()
	modes := []pool.Mode{pool.Steer, pool.Followup, pool.Collect}
	rules := []string{"ask", "allow"}
	mode := fmt.Sprintf("queue_mode = %q", modes[c.n(len(modes))])
	c.config = chaosMode.ReplaceAllString(c.config, mode)
	c.config = chaosStreaming.ReplaceAllStringFunc(c.config, func(string) string {
		return fmt.Sprintf("streaming = %t", c.n(2) == 0)
	})
	c.configure(fmt.Sprintf("[tools.exec]\nowner = %q", rules[c.n(len(rules))]))
}

// reload changes the configuration, and sends SIGHUP, which ends a gateway that has just begun.
// Some settings apply only to the next gateway.
func (c *chaos) reload() {
	c.t.Helper()
	c.vary()
	if c.isReady() {
		_ = c.p.cmd.Process.Signal(syscall.SIGHUP) // it may have ended meanwhile
	}
}
