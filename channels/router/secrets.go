package router

import (
	"bytes"
	"context"
	"errors"
	"html"
	"io"
	"slices"
	"strings"

	"gateway/bus"
	"gateway/channels/markup"
)

// Secrets are the gateway's own credentials as exact values. They must never be sent.
type Secrets []string

// minSecret is the minimum length in bytes of a credential to search for: shorter ones occur by
// chance.
const minSecret = 8

// NewSecrets returns the values that are long enough to be distinguished from other text.
func NewSecrets(values []string) Secrets {
	var s Secrets
	for _, v := range values {
		if len(v) >= minSecret && !slices.Contains(s, v) {
			s = append(s, v)
		}
	}
	return s
}

// SetSecrets sets the secrets that must not be sent.
func (r *Router) SetSecrets(s Secrets) { r.secrets.Store(&s) }

// textWithheld replaces a message that contains a secret.
const textWithheld = "[I have withheld this message: it contained a secret of the gateway.]"

// FoundIn reports whether a text contains a secret, as it is written or as people will read it.
func (s Secrets) FoundIn(text string) bool {
	in := func(text string) bool {
		return slices.ContainsFunc(s, func(secret string) bool { return strings.Contains(text, secret) })
	}
	switch {
	case in(text):
		return true
	case len(s) == 0 || !strings.ContainsAny(text, unread):
		return false
	}
	// Stars beside digits are shown, but they don't hide a secret.
	shown := markup.Plain(text)
	return in(shown) || in(strings.ReplaceAll(shown, "*", ""))
}

// unread are the characters of Markdown that may stand between those that people read.
const unread = "\\&*_~`[<|"

// safePrefix returns the part of an incomplete text that may be shown: without an end that could be
// the beginning of a secret.
func (s Secrets) safePrefix(text string) string {
	if s.FoundIn(text) {
		return textWithheld
	}
	end := len(text) - s.begun(text)
	word := text[strings.LastIndexAny(text, " \n")+1:]
	whole := word // without an entity whose end is still missing
	if at := strings.LastIndexByte(word, '&'); at >= 0 && !strings.Contains(word[at:], ";") {
		whole = word[:at]
	}
	if strings.ContainsAny(word, unread) && (s.bare().begun(stripMarkdown(word)) > 0 ||
		s.bare().begun(stripMarkdown(html.UnescapeString(whole))) > 0) {
		end = min(end, len(text)-len(word))
	}
	return text[:end]
}

// stripMarkdown returns text without the characters of Markdown.
func stripMarkdown(text string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(unread, r) {
			return -1
		}
		return r
	}, text)
}

func (s Secrets) bare() (list Secrets) {
	for _, secret := range s {
		list = append(list, stripMarkdown(secret))
	}
	return list
}

// begun returns the number of bytes at the end of text that could be the beginning of a secret.
func (s Secrets) begun(text string) (most int) {
	for _, secret := range s {
		for n := min(len(secret)-1, len(text)); n > most; n-- {
			if strings.HasSuffix(text, secret[:n]) {
				most = n
			}
		}
	}
	return most
}

// safeStatus returns the part of a status line that may be shown. It returns "" if the line
// contains a secret. From a long call, which ends with "…", it removes an end that could be the
// beginning of a secret.
func (s Secrets) safeStatus(status string) string {
	if s.FoundIn(status) {
		return ""
	}
	lines := strings.Split(status, "\n")
	for i, line := range lines {
		if call, cut := strings.CutSuffix(line, "…`"); cut {
			lines[i] = s.safePrefix(call) + "…`"
		}
	}
	return strings.Join(lines, "\n")
}

// FoundInFile reports whether the content of r contains a secret.
func (s Secrets) FoundInFile(r io.Reader) (bool, error) {
	longest := 0
	for _, secret := range s {
		longest = max(longest, len(secret))
	}
	if longest == 0 {
		return false, nil
	}
	buf := make([]byte, 0, 64<<10+longest)
	for {
		n, err := io.ReadFull(r, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if slices.ContainsFunc(s, func(v string) bool { return bytes.Contains(buf, []byte(v)) }) {
			return true, nil
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		keep := copy(buf[:longest-1], buf[len(buf)-longest+1:]) // a secret may continue in the next block
		buf = buf[:keep]
	}
}

// withheld returns m without texts and files that contain a secret.
func (s *sender) withheld(ctx context.Context, m bus.OutboundMessage) bus.OutboundMessage {
	secrets := *s.r.secrets.Load()
	if len(secrets) == 0 {
		return m
	}
	found := secrets.FoundIn(m.Text)
	for _, b := range m.Buttons {
		found = found || secrets.FoundIn(b.Label)
	}
	if found {
		m.Text, m.Buttons = textWithheld, nil
	}
	files := m.Attachments
	m.Attachments = nil
	for _, f := range files {
		if secrets.FoundIn(f.Name) || s.secretFile(f) {
			m.Text, found = strings.TrimSpace(m.Text+"\n\n"+textWithheld), true
			continue
		}
		m.Attachments = append(m.Attachments, f)
	}
	if found {
		s.r.log.ErrorContext(ctx, "message withheld: it contains a secret of the gateway",
			"to", s.to.String())
	}
	return m
}

// search returns p without texts and files that contain a secret. It searches only if there may be
// new secrets since the parts were planned.
func search(ctx context.Context, s *sender, p part) part {
	secrets := s.r.secrets.Load()
	if secrets == s.searched {
		return p
	}
	m := bus.OutboundMessage{Text: p.text, Buttons: p.buttons}
	if p.file != nil && p.content == "" {
		m.Attachments = []bus.Attachment{*p.file}
	}
	m = s.withheld(ctx, m)
	p.text, p.buttons = m.Text, m.Buttons
	switch {
	case p.content != "" && secrets.FoundIn(p.content):
		p.content = textWithheld
	case p.content == "" && len(m.Attachments) == 0:
		p.file = nil
	}
	return p
}

// secretFile reports whether f contains a secret. A file that can't be opened is not sent anyway.
func (s *sender) secretFile(f bus.Attachment) bool {
	file, err := s.r.files.Open(f.Path)
	if err != nil {
		return false
	}
	defer file.Close()
	found, err := s.r.secrets.Load().FoundInFile(file)
	return found || err != nil
}
