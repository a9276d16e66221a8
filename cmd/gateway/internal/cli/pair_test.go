package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"gateway/channels"
)

// A linked is a pairer that shows one code.
type linked struct{ number string }

func (l *linked) Pair(_ context.Context, number string, show func(channels.PairingCode)) error {
	l.number = number
	show(channels.PairingCode{Phone: "ABCD-1234"})
	return nil
}

// Pair warns about a zero after the country code before it shows the code for the phone, unless
// numbers in this country have that zero.
func TestPairZero(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ number, want string }{
		{"+49 0151 2345678", "repeat this with --phone +491512345678."},
		{"4901512345678", "after the country's code, 49."},
		{"+353 086 123 4567", "repeat this with --phone +353861234567."},
		{"+7 0912 345 67 89", "repeat this with --phone +79123456789."},
		{"+49 151 2345678", ""},
		{"+1 201 555 0123", ""}, // neither 12 nor 120 is a country code
		{"+44 7012 345678", ""},
		{"+39 06 1234567", ""},
		{"+225 01 23 45 67 89", ""},
		{"+242 06 123 4567", ""},
		{"+378 0549 123456", ""},
		{"", ""},
	} {
		var out bytes.Buffer
		p := &linked{}
		if err := Pair(t.Context(), p, strings.NewReader(""), &out, tt.number, ""); err != nil {
			t.Fatal(err)
		}
		before, _, shown := strings.Cut(out.String(), "Type this into the phone")
		if !shown || !strings.Contains(before, tt.want) || tt.want == "" && before != "" {
			t.Errorf("pair with %q printed %q, want %q before the code", tt.number, out.String(), tt.want)
		}
		if p.number != digits(tt.number) {
			t.Errorf("pair with %q asked for %q", tt.number, p.number)
		}
	}
}
