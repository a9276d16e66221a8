package shell

import (
	"encoding/json"
	"errors"
	"strings"
)

// execArgs are the arguments of exec: either Command or Argv. Dir is a folder of the workspace, ""
// its top. A Timeout of 0 means a minute.
type execArgs struct {
	Command string   `json:"command,omitempty" jsonschema:"for sh"`
	Argv    []string `json:"argv,omitempty" jsonschema:"instead of command"`
	Dir     string   `json:"dir,omitempty"`
	Timeout int      `json:"timeout,omitempty" jsonschema:"seconds, default 60"`

	Background bool `json:"background,omitempty"`
}

// argv returns the argument vector that "exec" runs for these arguments, exactly as it runs, or nil
// if the arguments name no command. A command line that needs no feature of a shell runs without a
// shell.
func argv(args json.RawMessage) []string {
	var a execArgs
	if json.Unmarshal(args, &a) != nil {
		return nil
	}
	argv, err := a.words()
	if err != nil {
		return nil
	}
	return argv
}

// words returns the argument vector for the arguments. The approval shows it and exec runs it, so
// there must be no second way to make one.
func (a *execArgs) words() ([]string, error) {
	switch {
	case a.Command != "" && len(a.Argv) > 0:
		return nil, errors.New("give either command or argv, not both")
	case strings.ContainsRune(a.Command+strings.Join(a.Argv, ""), 0):
		return nil, errors.New("a command can't contain a zero byte")
	case len(a.Argv) > 0:
		if a.Argv[0] == "" {
			return nil, errors.New("the first of argv must be a program")
		}
		return a.Argv, nil
	case strings.TrimSpace(a.Command) == "":
		return nil, errors.New("give a command, such as ls -l, or argv")
	}
	if words := plainWords(a.Command); words != nil {
		return words, nil
	}
	return []string{"/bin/sh", "-c", a.Command}, nil
}

// plain are the characters without a special meaning in a shell.
const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./,:+@%="

// plainWords returns the words of a command line that needs no shell, or nil. When in doubt, it
// returns nil.
func plainWords(command string) []string {
	if strings.Trim(command, plain+" \t") != "" {
		return nil
	}
	words := strings.Fields(command)
	if len(words) == 0 || strings.Contains(words[0], "=") || shellWord(words[0]) {
		return nil
	}
	return words
}

// shellWords are the built-in commands and reserved words of sh, and of bash, because sh may be
// bash. Many are also programs, but these behave a little differently.
const shellWords = ` . : alias bg bind break builtin caller case cd chdir command compgen ` +
	`complete compopt continue coproc declare dirs disown do done echo elif else enable esac eval ` +
	`exec exit export false fc fg fi for function getopts hash help history if in jobs ` +
	`kill let local logout mapfile popd printf pushd pwd read readarray readonly return ` +
	`select set shift shopt source suspend test then time times trap true type typeset ` +
	`ulimit umask unalias unset until wait while `

func shellWord(word string) bool { return strings.Contains(shellWords, " "+word+" ") }
