package command

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"gateway/bus"
)

// A command is spoken as "slash" and its name, such as "slash new", or as "stop" alone. The agent's
// name may come before it: "Ada, slash new". Only a voice message that begins so is a command. The
// names of commands are the same in all languages.

// slashes are the words for "/", as transcription services write them.
var slashes = []string{"/", "slash", "schrägstrich", "barre oblique", "barra", "слэш", "слеш",
	"斜杠", "斜線", "スラッシュ"}

// stops are the words that mean /stop without a "/", in the languages of slashes.
var stops = []string{"stop", "stopp", "arrête", "arrêtez", "para", "pare", "стоп", "停止", "停",
	"ストップ"}

// ParseSpoken returns the command in the transcript said, as a person would type it, or "". It also
// reports whether said contains one of the agent's names. If overheard is set, the person may have
// spoken to others, so "stop" alone is not a command.
func (c *Commands) ParseSpoken(said string, names []string, overheard bool) (
	text string, named bool,
) {
	rest := trimSpoken(said)
	for _, name := range names {
		if !mentionsName(said, name) {
			continue
		}
		named = true
		if after, ok := cutWord(rest, name); ok {
			rest = after
		} else if before, ok := cutLastWord(rest, name); ok &&
			slices.Contains(stops, strings.ToLower(before)) {
			rest = before
		}
	}
	if slices.Contains(stops, strings.ToLower(rest)) && (named || !overheard) {
		return "/stop", named
	}
	for _, slash := range slashes {
		if after, ok := cutWord(rest, slash); ok {
			return c.spelled(after), named
		}
	}
	return "", named
}

// spelled returns the command at the beginning of text, or "" if there is none. A name with a "-"
// may be spoken as two words.
func (c *Commands) spelled(text string) string {
	first, rest := cutFirst(text)
	second, after := cutFirst(rest)
	for _, try := range []struct{ name, args string }{{first + "-" + second, after}, {first, rest}} {
		name := strings.ReplaceAll(strings.ToLower(try.name), "_", "-")
		if slices.Contains(stops, name) {
			name = "stop"
		}
		if slices.ContainsFunc(c.list, func(k Command) bool { return k.Name == name && k.Help != "" }) {
			return strings.TrimSpace("/" + name + " " + try.args)
		}
	}
	return ""
}

// isSeparator reports whether r is not part of a word. Transcription services put such characters
// around words.
func isSeparator(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && r != '-' && r != '_'
}

// trimSpoken removes the characters before the first word, except for a slash, and after the last
// word.
func trimSpoken(said string) string {
	said = strings.TrimLeftFunc(said, func(r rune) bool { return isSeparator(r) && r != '/' })
	return strings.TrimRightFunc(said, isSeparator)
}

// cutFirst returns the first word of text and the text after it.
func cutFirst(text string) (word, rest string) {
	end := strings.IndexFunc(text, isSeparator)
	if end < 0 {
		end = len(text)
	}
	return text[:end], trimSpoken(text[end:])
}

// cutWord returns text without the word at its beginning, in upper or lower case. It reports false
// if text does not begin with the word.
func cutWord(text, word string) (rest string, ok bool) {
	if len(text) < len(word) || !strings.EqualFold(text[:len(word)], word) {
		return text, false
	}
	rest = text[len(word):]
	// The blank stands for the end of the text, which ends a word, too.
	next := []rune(rest + " ")[0]
	return trimSpoken(rest), isSeparator(next) || word == "/" || isUnspaced(word)
}

// cutLastWord is like cutWord for a word at the end of text.
func cutLastWord(text, word string) (rest string, ok bool) {
	at := len(text) - len(word)
	if at <= 0 || !strings.EqualFold(text[at:], word) {
		return text, false
	}
	return trimSpoken(text[:at]), true
}

// mentionsName reports whether name occurs in a transcript as a word, or as words.
func mentionsName(said, name string) bool {
	text, wanted := words(said), words(name)
	if strings.TrimSpace(wanted) == "" {
		return false
	}
	if isUnspaced(name) {
		return strings.Contains(text, strings.TrimSpace(wanted))
	}
	return strings.Contains(text, wanted)
}

// words returns the words of text in lower case, with a blank before and after each.
func words(text string) string {
	return " " + strings.Join(strings.FieldsFunc(strings.ToLower(text), isSeparator), " ") + " "
}

// isUnspaced reports whether word is in a script that puts no blanks between words, or attaches
// endings to names.
func isUnspaced(word string) bool {
	return strings.IndexFunc(word, func(r rune) bool {
		return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul,
			unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
	}) >= 0
}

// A transcript may be wrong. So only the commands in harmless run as soon as they are spoken. The
// commands in lists do so without an argument, because then they only show something. All other
// commands delete or grant something, or can't be undone.
var (
	harmless = []string{"help", "status", "stop", "new", "queue", "model", "think", "voice",
		"activity", "compact", "memory", "history", "skills", "remind", "timezone", "usage",
		"context", "deny", "halt", "audit", "whoami"}
	lists = []string{"jobs", "forget", "dream-log", "group", "activation", "mcp"}
)

// runsAtOnce reports whether a spoken command runs at once.
func runsAtOnce(name, args string) bool {
	name = strings.ReplaceAll(name, "_", "-")
	return slices.Contains(harmless, name) || args == "" && slices.Contains(lists, name)
}

// confirm asks the person to confirm a spoken command in writing.
func confirm(_ context.Context, r *Request) (Reply, error) {
	text := strings.TrimSpace("/" + r.Name + " " + r.Args)
	return Reply{Text: fmt.Sprintf("I have understood `%s`. Send it in writing if you mean it.", text),
		Buttons: []bus.Button{{Label: "Do it", Text: text}}}, nil
}
