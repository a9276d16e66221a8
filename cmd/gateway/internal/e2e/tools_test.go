package e2e

import (
	"slices"
	"strings"
	"testing"

	"gateway/agent/tool"
	"gateway/cmd/gateway/internal/config"
)

// TestToolNames checks that rules can name each existing tool and no others.
func TestToolNames(t *testing.T) {
	t.Parallel()
	s := newHostileWorld(t, nil)
	s.tell(victimID, "what can you do?", "you said what can you do?")
	var names []string
	for _, spec := range s.request("what can you do?").Tools {
		if spec.Name != tool.MoreName {
			names = append(names, spec.Name)
			continue
		}
		for _, line := range strings.Split(spec.Description, "\n- ")[1:] {
			name, _, _ := strings.Cut(line, ":")
			names = append(names, name)
		}
	}
	known := config.ToolNames()
	off := func(name string) bool { return name == "web_search" }
	known = slices.DeleteFunc(known, off)
	slices.Sort(known)
	slices.Sort(names)
	if !slices.Equal(names, known) {
		t.Errorf("the tools are\n%q, and rules can be about\n%q", names, known)
	}
}
