package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"gateway/cmd/gateway/internal/doctor"
)

// TestPrintFindings checks that the line about the settings does not count as a check, neither in
// the text nor in the JSON.
func TestPrintFindings(t *testing.T) {
	list := []doctor.Finding{
		{ID: "settings", What: "Settings", State: doctor.Note, Text: "process 7 runs"},
		{ID: "home", What: "Home", State: doctor.OK, Text: "is fine"},
		{ID: "model", What: "Model", State: doctor.Bad, Text: "is away", Remedy: "Wait."},
	}
	for asJSON, want := range map[bool]string{
		false: "process 7 runs\n✗ Model: is away\n    Wait.\nHome: is fine\n",
		true:  `"id": "settings"`,
	} {
		var out bytes.Buffer
		cmd := withJSONFlag(&cobra.Command{})
		cmd.SetOut(&out)
		cmd.SetArgs([]string{fmt.Sprintf("--json=%t", asJSON)})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return printFindings(cmd, list) }
		err := cmd.Execute()
		if err == nil || err.Error() != "1 problem found, 1 check passed" {
			t.Errorf("as JSON %t: the error is %v", asJSON, err)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("as JSON %t: printed %q, want %q", asJSON, out.String(), want)
		}
	}
}
