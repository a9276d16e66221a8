package whatsapp_test

import (
	"errors"
	"slices"
	"testing"

	"gateway/bus"
	"gateway/channels"
)

// TestKeysNotToBeHad checks that a message that could not be encrypted for its recipient does
// not count as sent.
func TestKeysNotToBeHad(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	w.server.FailKeys(1)
	part := bus.Part{Key: "1", To: w.adas(), Text: "hello"}
	if _, err := w.ch.Send(t.Context(), part); err == nil || errors.Is(err, channels.ErrRefused) {
		t.Errorf("Send without keys = %v, want an error that may be tried again", err)
	}
	if _, err := w.ch.Send(t.Context(), part); err != nil {
		t.Errorf("second Send = %v", err)
	}
	if got := w.seen(); !slices.Equal(got, []string{"hello"}) {
		t.Errorf("Ada sees %q, want hello", got)
	}
}

// TestNewDevice checks that a message reaches a device that the client does not know yet, and that
// the other devices show it only once.
func TestNewDevice(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	w.send("one")
	w.server.HideNewDevices()
	tablet, err := w.ada.Link(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.send("two")
	w.send("three")
	w.wait("the tablet has both messages", func() bool { return len(tablet.Texts()) >= 2 })
	if got := tablet.Texts(); !slices.Equal(got, []string{"two", "three"}) {
		t.Errorf("the tablet shows %q", got)
	}
	if got := w.seen(); !slices.Equal(got, []string{"one", "two", "three"}) {
		t.Errorf("the phone shows %q", got)
	}
}

// TestDeviceWithoutKeys checks that a device whose keys can't be had costs one second attempt, and
// holds up nothing.
func TestDeviceWithoutKeys(t *testing.T) {
	t.Parallel()
	w := start(t)
	tablet, err := w.ada.Link(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.server.WithholdKeys(tablet)
	w.run()
	before := w.server.Sends()
	w.send("one")
	w.send("two")
	if got := w.server.Sends() - before; got != 3 {
		t.Errorf("two messages took %d attempts, want 3", got)
	}
	w.server.WithholdKeys(nil)
	w.send("three")
	w.wait("the tablet has a message", func() bool { return len(tablet.Texts()) > 0 })
	if got := tablet.Texts(); !slices.Equal(got, []string{"three"}) {
		t.Errorf("the tablet shows %q", got)
	}
	if got := w.seen(); !slices.Equal(got, []string{"one", "two", "three"}) {
		t.Errorf("the phone shows %q", got)
	}
}
