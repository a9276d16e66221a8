package discord

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gateway/channels"
)

// A new channel has no cursor, and Discord must answer requests about it before a message can be
// stored. If the process is killed meanwhile, the next one reads only channels with a cursor. So
// the gateway first stores a provisional cursor, from which the next process reads. If the gateway
// then stores no message of the channel, it deletes the provisional cursor. Otherwise the number of
// cursors would grow with the channels that the bot sees.

// provisionalMark begins a provisional cursor where cursors are stored.
const provisionalMark = "~"

// parseCursor parses a stored cursor. It returns 0 for an invalid one.
func parseCursor(stored string) (n uint64, provisional bool) {
	id, provisional := strings.CutPrefix(stored, provisionalMark)
	return idNumber(id), provisional
}

func formatProvisional(n uint64) string { return provisionalMark + strconv.FormatUint(n, 10) }

// provisional returns the provisional cursor that must be stored before a worker gets l, or 0 if
// none is needed: a message of a known channel is stored at once.
func (f *feed) provisional(l *lane) uint64 {
	switch {
	case l.busy || l.provisional > 0:
		return 0
	case l.assumed > 0: // see add and newFeed
		return l.cursor
	case l.cursor > 0:
		return 0
	}
	i := slices.IndexFunc(l.items, func(it item) bool {
		return it.message != nil && !it.edit && it.message.isFromPerson()
	})
	if i < 0 {
		return 0
	}
	m := l.items[i].message
	if m.Guild == "" || f.storer.places.isCurrent(l.place, m.Guild) {
		return 0
	}
	return max(idNumber(m.ID), 1) - 1
}

// keep starts a worker that stores the provisional cursor of l. The items of l wait for it. These
// workers don't count as writers, which may all be waiting for Discord.
func (f *feed) keep(ctx context.Context, l *lane) {
	l.unkept = false
	cursor := f.provisional(l)
	if cursor == 0 { // the channel was looked up meanwhile
		f.enqueue(l)
		return
	}
	j := &job{place: l.place, keeper: true}
	l.busy = true
	f.keeping++
	f.workers.Go(func() {
		j.err = f.storer.keep(ctx, j, cursor)
		f.done <- j
	})
}

// kept records the result of a worker that keep has started.
func (f *feed) kept(j *job) error {
	l := f.lanes[j.place]
	l.busy, l.provisional = false, j.provisional
	f.keeping--
	f.enqueue(l)
	return j.err
}

// keep stores a provisional cursor.
func (s *storer) keep(ctx context.Context, j *job, cursor uint64) error {
	b := channels.Batch{CursorKey: j.place, Cursor: formatProvisional(cursor), Keep: true}
	if err := s.in.Publish(ctx, b); err != nil {
		return fmt.Errorf("store where to read %s from: %w", j.place, err)
	}
	j.provisional = cursor
	return nil
}

// settle deletes the provisional cursor of a channel that needs it no more. If a message was
// stored, there is another cursor, which stays.
func (s *storer) settle(ctx context.Context, j *job) error {
	if j.provisional == 0 || j.assumed > 0 || j.wait > 0 || len(j.left) > 0 {
		return nil
	}
	b := channels.Batch{CursorKey: j.place, Cursor: formatProvisional(j.provisional), Forget: true}
	if err := s.in.Publish(ctx, b); err != nil {
		return fmt.Errorf("forget where to read %s from: %w", j.place, err)
	}
	j.provisional = 0
	return nil
}
