package telegram

import (
	"testing"

	"gateway/channels/channeltest"
)

func TestDeadConnection(t *testing.T) { channeltest.DeadConnection(t, NewTransport()) }
