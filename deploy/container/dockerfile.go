package main

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
)

// A stage is one FROM of a Dockerfile and what follows it.
type stage struct {
	base, name string
	steps      []step
}

// A step is one instruction.
type step struct {
	line int
	op   string   // in capitals
	from string   // of COPY --from
	rest string   // what follows the flags
	list []string // rest, if it is a list in JSON
}

// errorf returns what is wrong with the step.
func (s step) errorf(format string, args ...any) error {
	return fmt.Errorf("container: Dockerfile:%d: %s: %w", s.line, s.op, fmt.Errorf(format, args...))
}

// known are the instructions that package main can follow. One that it can't must not be passed
// over, or the plain root file system would differ from the image.
var known = []string{"FROM", "ARG", "ENV", "WORKDIR", "COPY", "RUN", "LABEL", "USER", "VOLUME",
	"STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT"}

// parseDockerfile returns the stages of a Dockerfile.
func parseDockerfile(text string) ([]stage, error) {
	var stages []stage
	for _, l := range logicalLines(text) {
		s, err := parseStep(l)
		if err != nil {
			return nil, err
		}
		if s.op == "FROM" {
			words := strings.Fields(s.rest)
			st := stage{base: words[0]}
			if len(words) == 3 && strings.EqualFold(words[1], "AS") {
				st.name = words[2]
			} else if len(words) != 1 {
				return nil, s.errorf("want FROM IMAGE [AS NAME]")
			}
			stages = append(stages, st)
			continue
		}
		if len(stages) == 0 {
			return nil, s.errorf("it stands before FROM")
		}
		last := &stages[len(stages)-1]
		last.steps = append(last.steps, s)
	}
	if len(stages) == 0 {
		return nil, fmt.Errorf("container: Dockerfile: there is no FROM")
	}
	return stages, nil
}

// A logicalLine is an instruction with its continuations, and the line that it begins in.
type logicalLine struct {
	number int
	text   string
}

func logicalLines(text string) []logicalLine {
	var list []logicalLine
	begun := false
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || strings.HasPrefix(trimmed, "#") {
			continue
		}
		part, more := strings.CutSuffix(trimmed, `\`)
		if begun {
			list[len(list)-1].text += " " + part
		} else {
			list = append(list, logicalLine{i + 1, part})
		}
		begun = more
	}
	return list
}

func parseStep(l logicalLine) (step, error) {
	op, rest, _ := strings.Cut(strings.TrimSpace(l.text), " ")
	s := step{line: l.number, op: strings.ToUpper(op), rest: strings.TrimSpace(rest)}
	if !slices.Contains(known, s.op) || s.rest == "" {
		return s, s.errorf("can't follow %q", l.text)
	}
	for s.op != "HEALTHCHECK" && strings.HasPrefix(s.rest, "--") {
		flag, after, _ := strings.Cut(s.rest, " ")
		name, ok := strings.CutPrefix(flag, "--from=")
		if !ok || s.op != "COPY" {
			return s, s.errorf("can't follow %s", flag)
		}
		s.from, s.rest = name, strings.TrimSpace(after)
	}
	if s.op == "HEALTHCHECK" {
		_, s.rest, _ = strings.Cut(s.rest, "CMD ")
	}
	if strings.HasPrefix(s.rest, "[") {
		if err := json.Unmarshal([]byte(s.rest), &s.list); err != nil {
			return s, s.errorf("%w", err)
		}
	}
	return s, nil
}

// An image is what the steps of a stage say of how to run it.
type image struct {
	args       map[string]string // of the build
	env        []string
	dir        string
	uid, gid   int
	volume     string
	health     []string
	entrypoint []string
	stop       string // the name of a signal
}

// defaultPath is the PATH of images that say nothing else.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func newImage() *image {
	return &image{args: make(map[string]string), env: []string{"PATH=" + defaultPath}, dir: "/",
		stop: "SIGTERM"}
}

// note takes in a step that changes no file. It reports whether it was one.
func (m *image) note(s step) (bool, error) {
	switch s.op {
	case "ARG":
		name, value, _ := strings.Cut(s.rest, "=")
		m.args[name] = value
	case "ENV":
		m.env = append(m.env, strings.Fields(s.rest)...)
	case "WORKDIR":
		m.dir = path.Join(m.dir, s.rest)
		if path.IsAbs(s.rest) {
			m.dir = s.rest
		}
		return false, nil // it is made, too
	case "USER":
		if _, err := fmt.Sscanf(s.rest, "%d:%d", &m.uid, &m.gid); err != nil {
			return true, s.errorf("want UID:GID: %w", err)
		}
	case "VOLUME":
		m.volume = s.rest
	case "STOPSIGNAL":
		m.stop = s.rest
	case "HEALTHCHECK", "ENTRYPOINT":
		if s.list == nil {
			return true, s.errorf("want a list: the gateway is started by no shell")
		}
		if s.op == "ENTRYPOINT" {
			m.entrypoint = s.list
		} else {
			m.health = s.list
		}
	case "LABEL":
	default:
		return false, nil
	}
	return true, nil
}

// environ returns the variables that a RUN sees.
func (m *image) environ() []string {
	list := slices.Clone(m.env)
	for name, value := range m.args {
		list = append(list, name+"="+value)
	}
	return list
}
