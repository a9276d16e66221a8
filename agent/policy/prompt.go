package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"gateway/store/plainjson"
)

// maxShown is the length of the longest part of a call that a prompt shows completely, in bytes.
const maxShown = 3000

// Prompt describes c, as Markdown, for the person who approves it: the exact effect of the call. It
// makes invisible characters visible. If it leaves out a part, the text says so.
func (c Call) Prompt() string {
	c.Args = readable(c.Args)
	if len(c.Argv) > 0 {
		short, long := otherArguments(c.Args)
		return fmt.Sprintf("`%s` wants to run%s:\n%s%s", c.Tool, short,
			block(commandLine(c.Argv)), long) + c.files()
	}
	short, long := arguments(c.Args)
	text := fmt.Sprintf("`%s` wants to run with:\n%s", c.Tool, block(indented(short)))
	for _, name := range slices.Sorted(maps.Keys(long)) {
		text += fmt.Sprintf("\nand with this as `%s`:\n%s",
			strings.ReplaceAll(escapeInvisible(name, false), "`", "⟨U+0060⟩"),
			block(escapeInvisible(long[name], true)))
	}
	return text + c.files()
}

// files shows the files that c names. If a file's hash differs when the command runs, the file has
// changed since the approver read its content.
func (c Call) files() string {
	if len(c.Files) == 0 {
		return ""
	}
	var b strings.Builder
	unknown := ""
	for _, f := range c.Files {
		sum := "content unknown"
		if f.Sum != "" {
			sum = "SHA-256 " + f.Sum[:min(len(f.Sum), 12)] + "…"
		} else {
			unknown = "\n**The content of some of them may change before the command runs.**"
		}
		fmt.Fprintf(&b, "%s, %d bytes, %s\n", escapeInvisible(f.Name, false), f.Size, sum)
	}
	list := block(strings.TrimSuffix(b.String(), "\n"))
	return "\nwith these files as they are now:\n" + list + unknown
}

// readable returns args without escapes: package json writes & in a URL as \u0026.
func readable(args json.RawMessage) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return args
	}
	return json.RawMessage(plainjson.Text(v))
}

// arguments separates the arguments of a call: short ones, and texts of several lines, which are
// easier to read outside of JSON.
func arguments(args json.RawMessage) (short json.RawMessage, long map[string]string) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(args, &fields) != nil {
		return args, nil
	}
	long = make(map[string]string)
	for name, raw := range fields {
		var text string
		if json.Unmarshal(raw, &text) == nil && strings.Contains(text, "\n") {
			long[name] = text
			delete(fields, name)
		}
	}
	if len(long) == 0 {
		return args, nil
	}
	short, err := plainjson.Marshal(fields)
	if err != nil {
		return args, nil
	}
	return short, long
}

// indented returns JSON in a form for people.
func indented(text json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return escapeInvisible(string(text), true)
	}
	return escapeInvisible(b.String(), true)
}

// maxBeside is how long an argument beside a command may be, in bytes, to be shown in the sentence.
const maxBeside = 300

// otherArguments shows the arguments of a command's call other than the command, such as its folder
// or input. Long arguments follow the command.
func otherArguments(args json.RawMessage) (short, long string) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(args, &fields) != nil {
		return "", ""
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		text := escapeInvisible(name+": "+string(fields[name]), false)
		switch {
		case name == "command" || name == "argv":
		case len(text) > maxBeside:
			long += "\nwith:\n" + block(text)
		default:
			short += fmt.Sprintf(", with `%s`", strings.ReplaceAll(text, "`", "⟨U+0060⟩"))
		}
	}
	return short, long
}

// commandLine shows argv: on one line if all words are plain, and otherwise one word on each line.
func commandLine(argv []string) string {
	plain := true
	for _, word := range argv {
		plain = plain && word != "" && !strings.ContainsFunc(word, func(r rune) bool {
			known := r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r))
			return !known && !strings.ContainsRune(plainSigns, r)
		})
	}
	if plain {
		return strings.Join(argv, " ")
	}
	if len(argv) == 3 && argv[1] == "-c" {
		return "a shell, " + escapeInvisible(argv[0], false) + ", with the script:\n" +
			escapeInvisible(argv[2], true)
	}
	lines := make([]string, len(argv))
	for i, word := range argv {
		lines[i] = fmt.Sprintf("[%d] %s", i, escapeInvisible(word, false))
	}
	return strings.Join(lines, "\n")
}

// plainSigns are the characters of plain words besides ASCII letters and digits.
const plainSigns = "%+,-./:=@_^"

// escapeInvisible returns s with numbers such as ⟨U+001B⟩ in place of characters that are invisible
// or change the text around them. It keeps line feeds if lines is set.
func escapeInvisible(s string, lines bool) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, "⟨byte %02X⟩", s[i])
		case r == '\n' && lines, r == ' ', isVisible(r):
			b.WriteString(s[i : i+n])
		default:
			fmt.Fprintf(&b, "⟨%U⟩", r)
		}
		i += n
	}
	return b.String()
}

// isVisible reports whether r is visible and does not change the text around it.
func isVisible(r rune) bool {
	return unicode.IsGraphic(r) && !unicode.IsMark(r) && !unicode.IsSpace(r) && r != '⟨' &&
		r != '⟩' && !strings.ContainsRune(blankSigns, r)
}

// blankSigns are letters and symbols that look like a blank.
const blankSigns = "\u115f\u1160\u2800\u3164\uffa0"

// block returns s as a code block that nothing in s can end, cut if it is long.
func block(s string) string {
	note := ""
	if len(s) > maxShown {
		head, tail := s[:maxShown*2/3], s[len(s)-maxShown/3:]
		head, tail = strings.ToValidUTF8(head, ""), strings.ToValidUTF8(tail, "")
		note = fmt.Sprintf("\n**%d bytes in the middle are not shown.** Deny it if you can't be sure "+
			"of them.", len(s)-len(head)-len(tail))
		s = head + "\n[… not shown …]\n" + tail
	}
	fence := "```"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	return fence + "\n" + s + "\n" + fence + note
}
