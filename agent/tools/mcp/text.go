package mcp

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"gateway/store/plaintext"
)

// oneLine returns foreign text as one line of at most most characters that can't imitate a part of
// the prompt. It removes control characters, invisible characters, and the brackets that the
// gateway's and the models' own marks use.
func oneLine(text string, most int) string {
	// This limits the work. A character has 4 bytes at most; the rest allows for characters that
	// are removed.
	text = strings.ToValidUTF8(text[:min(len(text), 8*most)], "")
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r), unicode.Is(unicode.Variation_Selector, r), r == utf8.RuneError:
			return -1
		}
		return r
	}, text)
	text = marks.Replace(strings.Join(strings.Fields(text), " "))
	return plaintext.Shorten(text, most)
}

var marks = strings.NewReplacer("[", "(", "]", ")", "<", "‹", ">", "›", "```", "'''")

// plain returns the foreign text of a result as valid UTF-8 without terminal control characters.
// Unlike oneLine it keeps the structure of the text.
func plain(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}

// secrets returns the strings of the configuration that errors and logs must not show, the longest
// first.
func (s Server) secrets() []string {
	var list []string
	for _, v := range s.Header {
		list = append(list, v)
		if _, token, ok := strings.Cut(v, " "); ok {
			list = append(list, token) // without "Bearer"
		}
	}
	list = slices.AppendSeq(list, maps.Values(s.Env))
	list = append(list, s.OAuth.ClientSecret, s.OAuth.PrivateKey)
	if u, err := url.Parse(s.URL); err == nil && s.URL != "" {
		if password, ok := u.User.Password(); ok {
			list = append(list, password, u.User.String())
		}
		list = append(list, u.RawQuery)
		for _, values := range u.Query() {
			list = append(list, values...)
		}
		if len(u.Path) > 1 { // some endpoints have a token in the path
			list = append(list, u.Path, u.EscapedPath())
		}
	}
	list = slices.DeleteFunc(list, func(v string) bool { return len(v) < minSecret })
	slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
	return slices.Compact(list)
}

// minSecret is the length of the shortest secret that is removed. A shorter value, such as "1",
// occurs in too many other texts.
const minSecret = 5

// A redactor removes a server's secrets from texts.
type redactor struct {
	login  *login   // has the tokens
	hidden []string // secrets of the configuration
}

// scrub returns text for logs and people: without the server's secrets, as one line of at most 600
// characters.
func (r *redactor) scrub(text string) string { return oneLine(r.hide(text), 600) }

// written returns text for the model: without the server's secrets, and otherwise unchanged, so
// that the model can use a path or JSON in an error. The agent makes sure that the text can't end
// the frame around foreign text.
func (r *redactor) written(text string) string {
	return plaintext.Shorten(strings.TrimSpace(plain(r.hide(text))), maxErrorText)
}

func (r *redactor) hide(text string) string {
	for _, secret := range append(r.login.secrets(), r.hidden...) {
		text = strings.ReplaceAll(text, secret, "(hidden)")
	}
	return text
}
