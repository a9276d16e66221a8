package whatsapp

import (
	"testing"
	"testing/synctest"
	"time"

	"go.mau.fi/whatsmeow"
	"go.mau.fi/whatsmeow/store"
)

// TestAnswerToEndedWait checks that a client that ends a wait by itself, because the connection has
// ended, gets no answer. If the answer comes at that moment, the panic of the client is survived.
func TestAnswerToEndedWait(t *testing.T) {
	client := whatsmeow.NewClient(&store.Device{}, nil)
	//lint:ignore SA1019 the client has no other way to wait for an answer
	inner := client.DangerousInternals()
	done := make(chan struct{})
	close(done)
	waits := inner.WaitResponse("a")
	answer(t.Context(), client, "a", done)
	if len(waits) > 0 {
		t.Error("the client got an answer although its wait had ended")
	}
	close(waits)
	if !refuse(t.Context(), client, "a") {
		t.Error("the panic does not count as an answer")
	}
	waits = inner.WaitResponse("b")
	if !refuse(t.Context(), client, "b") || len(waits) != 1 {
		t.Error("the client that waits got no answer")
	}
	if refuse(t.Context(), client, "c") {
		t.Error("a client that does not wait counts as answered")
	}
}

// TestAnswerBeforeClose checks that the client may close the channel of an answer that it has not
// taken, as it does if it can't write the message. The race detector reports it otherwise.
func TestAnswerBeforeClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := whatsmeow.NewClient(&store.Device{}, nil)
		//lint:ignore SA1019 the client has no other way to wait for an answer
		inner := client.DangerousInternals()
		waits := inner.WaitResponse("a")
		go refuse(t.Context(), client, "a")
		// Nothing but the client's lock may order the answer and the end of the wait, as
		// synctest.Wait would.
		time.Sleep(time.Second)
		inner.CancelResponse("a", waits)
	})
}
