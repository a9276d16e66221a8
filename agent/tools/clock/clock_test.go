package clock

import (
	"encoding/json"
	"testing"
	"time"

	"gateway/agent/tool"
)

func TestTime(t *testing.T) {
	now := func() time.Time { return time.Date(2026, 7, 16, 20, 51, 7, 0, time.UTC) }
	clock := New(now, time.FixedZone("CET", 3600))
	tests := []struct{ args, want string }{
		{`{}`, "Thursday 2026-07-16 21:51:07 +01:00 (CET)\nUTC: 2026-07-16T20:51:07Z"},
		{`{"zone":"Asia/Singapore"}`,
			"Friday 2026-07-17 04:51:07 +08:00 (Asia/Singapore, +08)\nUTC: 2026-07-16T20:51:07Z"},
		{`{"zone":"Europe/Berlin"}`,
			"Thursday 2026-07-16 22:51:07 +02:00 (Europe/Berlin, CEST)\nUTC: 2026-07-16T20:51:07Z"},
		{`{"zone":"UTC"}`, "Thursday 2026-07-16 20:51:07 +00:00 (UTC)\nUTC: 2026-07-16T20:51:07Z"},
	}
	for _, tt := range tests {
		got, err := clock.Run(t.Context(), tool.Call{Args: json.RawMessage(tt.args)})
		if err != nil || got.Text != tt.want {
			t.Errorf("time %s = %q, %v; want %q", tt.args, got.Text, err, tt.want)
		}
	}
	for _, zone := range []string{"Mars/Olympus", "../../etc/passwd"} {
		args, err := json.Marshal(timeArgs{Zone: zone})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := clock.Run(t.Context(), tool.Call{Args: args}); err == nil {
			t.Errorf("time in %q = %q, want an error", zone, got.Text)
		}
	}
}

func TestRegisters(t *testing.T) {
	if _, err := tool.NewRegistry(New(time.Now, time.UTC)); err != nil {
		t.Error(err)
	}
}
