package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// unitCalls returns the system calls that deploy/gateway.service allows: what its SystemCallFilter=
// names, with the groups that this machine's systemd makes of them.
func unitCalls(ctx context.Context) ([]string, error) {
	unit, err := os.ReadFile("deploy/gateway.service")
	if err != nil {
		return nil, fmt.Errorf("container: %w", err)
	}
	groups, err := exec.CommandContext(ctx, "systemd-analyze", "syscall-filter").Output()
	if err != nil {
		return nil, fmt.Errorf("container: systemd-analyze: %w", err)
	}
	words := []string{"@default"} // which is in every list
	for line := range strings.Lines(string(unit)) {
		if list, ok := strings.CutPrefix(line, "SystemCallFilter="); ok {
			words = append(words, strings.Fields(list)...)
		}
	}
	return expandGroups(words, string(groups))
}

// expandGroups replaces the names of groups by what is in them, as "systemd-analyze syscall-filter"
// prints that: a group's name, and its members indented below.
func expandGroups(words []string, text string) ([]string, error) {
	groups := make(map[string][]string)
	group := ""
	for line := range strings.Lines(text) {
		word := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "@"):
			group = word
		case strings.HasPrefix(line, " ") && !strings.HasPrefix(word, "#"):
			groups[group] = append(groups[group], word)
		}
	}
	var calls []string
	for i := 0; i < len(words); i++ {
		word := words[i]
		switch {
		case !strings.HasPrefix(word, "@"):
			calls = append(calls, word)
		case groups[word] == nil:
			return nil, fmt.Errorf("container: systemd knows no group %s", word)
		case !slices.Contains(words[:i], word): // a group may stand in several
			words = append(words, groups[word]...)
		}
	}
	slices.Sort(calls)
	return slices.Compact(calls), nil
}

// allowOnly is a filter that refuses all other system calls, as systemd does.
func allowOnly(calls []string) object {
	return object{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": eperm,
		"syscalls": []object{{"names": calls, "action": "SCMP_ACT_ALLOW"}}}
}
