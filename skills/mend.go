package skills

import (
	"regexp"
	"strconv"
	"strings"
)

var (
	keyLine     = regexp.MustCompile(`^(\s*)([A-Za-z0-9_][A-Za-z0-9_.-]*):[ \t]+(\S.*)$`)
	blockScalar = regexp.MustCompile(`^[|>][+-]?[0-9]?[+-]?\s*(#.*)?$`)
)

// mend returns a front matter that is not YAML as its author may have meant it: tabs indent, and a
// value with ": " or a bracket in it is a text. It is only for what can't be read as it is.
func mend(text string) string {
	lines := strings.Split(text, "\n")
	var out []string
	for i := 0; i < len(lines); i++ {
		line := untab(lines[i])
		m := keyLine.FindStringSubmatch(line)
		if m == nil {
			if strings.IndexAny(line, `{}[]"`) == 0 { // JSON below its key
				line = "  " + line
			}
			out = append(out, line)
			continue
		}
		indent, key, value := m[1], m[2], strings.TrimSpace(m[3])
		more := following(lines[i+1:], len(indent))
		switch {
		case blockScalar.MatchString(value):
			out = append(out, line)
			for _, l := range more {
				out = append(out, untab(l))
			}
			i += len(more)
		case key == "description" && indent == "" && !strings.ContainsAny(value[:1], `"'{`):
			for _, l := range more {
				value += " " + strings.TrimSpace(l)
			}
			out = append(out, key+": "+quote(value))
			i += len(more)
		case complete(value) && !readable(key+": "+value):
			out = append(out, indent+key+": "+quote(value))
		default:
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// untab returns a line that is indented by spaces.
func untab(line string) string {
	rest := strings.TrimLeft(line, " \t")
	return strings.ReplaceAll(line[:len(line)-len(rest)], "\t", "  ") + rest
}

// following returns the first lines that are indented by more than n, and empty ones among them.
func following(lines []string, n int) []string {
	end := 0
	for i, line := range lines {
		line = untab(line)
		rest := strings.TrimLeft(line, " ")
		if rest == "" {
			continue
		}
		if len(line)-len(rest) <= n {
			break
		}
		end = i + 1
	}
	return lines[:end]
}

// complete reports whether a value ends on the line on which it begins.
func complete(value string) bool {
	switch value[0] {
	case '{', '[':
		return strings.Count(value, "{")+strings.Count(value, "[") ==
			strings.Count(value, "}")+strings.Count(value, "]")
	case '"', '\'':
		return strings.Count(value, value[:1]) > 1
	}
	return true
}

func readable(line string) bool {
	_, err := readYAML(line)
	return err == nil
}

// quote returns a value as YAML's quoted text. JSON's and Go's escapes are YAML's for what is
// printable, and nothing else is kept.
func quote(value string) string { return strconv.Quote(oneLine(value)) }
