package whatsapp

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.mau.fi/whatsmeow"
	"go.mau.fi/whatsmeow/types"

	"gateway/channels"
)

// errSlower reports that WhatsApp wants fewer messages. WhatsApp does not say for how long.
var errSlower = errors.New("too many messages")

// errLate reports that WhatsApp has not accepted a message in time.
var errLate = errors.New("WhatsApp did not answer in time")

// classifySend is classify for an error of sending a message to a chat.
func classifySend(err error, to types.JID) error {
	if errors.Is(err, whatsmeow.ErrServerReturnedError) {
		return classifyCode(err, to)
	}
	return classify(err)
}

// classify converts an error of the client into one of the channel contract. It treats unknown
// errors as temporary.
func classify(err error) error {
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, whatsmeow.ErrIQRateOverLimit):
		return errSlower
	case errors.Is(err, whatsmeow.ErrNotInGroup), errors.Is(err, whatsmeow.ErrGroupNotFound):
		return fmt.Errorf("%w: this account is not a member of the group (any more)",
			channels.ErrRefused)
	case errors.Is(err, whatsmeow.ErrNotConnected), errors.Is(err, whatsmeow.ErrNotLoggedIn):
		return errOffline
	case errors.Is(err, errLate), errors.Is(err, whatsmeow.ErrIQTimedOut):
		return errLate
	}
	// The library has no variables for these errors.
	if strings.HasSuffix(err.Error(), "upload failed with status code 413") {
		return fmt.Errorf("%w: WhatsApp does not take a file of this size", channels.ErrRefused)
	}
	if strings.Contains(err.Error(), "no LID found") {
		return fmt.Errorf("%w: this number is not on WhatsApp, or can't be written to",
			channels.ErrRefused)
	}
	return errors.New(channels.Clean(err.Error(), 300))
}

// classifyCode is classifySend for the code with which WhatsApp refused the message. The codes are
// undocumented; users of the library found out their meanings.
func classifyCode(err error, to types.JID) error {
	// The library appends the code to the text of its error.
	text := err.Error()
	code, _ := strconv.Atoi(text[strings.LastIndexByte(text, ' ')+1:]) // 0 is not a known code
	switch code {
	case 429:
		return errSlower
	case 403, 405:
		// For a person, too, this may be over after an hour or two.
		if to.Server == types.GroupServer {
			return fmt.Errorf("%w: this account may not write to the group (%d)",
				channels.ErrRefused, code)
		}
	case 401, 404, 406:
		return fmt.Errorf("%w: this account may not write to the chat (%d)", channels.ErrRefused, code)
	case 463:
		return fmt.Errorf("%w: WhatsApp lets this account write to this person only after they "+
			"have written to it (%d)", channels.ErrRefused, code)
	}
	return fmt.Errorf("WhatsApp refused the message (%d)", code)
}

// rated adds the time to wait to an error that asks us to slow down.
func (c *Channel) rated(err error) error {
	if errors.Is(err, errSlower) {
		return &channels.RateError{After: c.opts.RateWait, Account: true}
	}
	return err
}
