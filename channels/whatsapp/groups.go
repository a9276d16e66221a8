package whatsapp

import (
	"context"
	"sync"
	"time"

	"go.mau.fi/whatsmeow/types"

	"gateway/channels"
)

// How long titles of groups are cached, when a failed request is repeated, and how long a message
// waits for the answer.
const (
	titleLife  = time.Hour
	titleRetry = time.Minute
	titleWait  = 2 * time.Second
)

// titles caches the titles of groups. Its methods are safe for concurrent use.
type titles struct {
	mu   sync.Mutex
	byID map[types.JID]title
}

type title struct {
	text  string
	until time.Time
}

func newTitles() *titles { return &titles{byID: make(map[types.JID]title)} }

func (t *titles) set(group types.JID, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byID[group] = title{text, time.Now().Add(titleLife)}
}

// get returns a title, and whether it is current.
func (t *titles) get(group types.JID) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.byID[group]
	return known.text, time.Now().Before(known.until)
}

// later keeps an old title, or none, for some time.
func (t *titles) later(group types.JID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byID[group] = title{t.byID[group].text, time.Now().Add(titleRetry)}
}

// title returns the title of a group as far as it is known.
func (s *session) title(ctx context.Context, group types.JID) string {
	text, fresh := s.c.titles.get(group)
	if fresh {
		return text
	}
	ctx, cancel := context.WithTimeout(ctx, titleWait)
	defer cancel()
	info, err := s.client.GetGroupInfo(ctx, group)
	if err != nil {
		s.c.log.InfoContext(ctx, "title of a group could not be read", "err", err)
		s.c.titles.later(group)
		return text
	}
	s.setTimer(ctx, group, timer{seconds: info.DisappearingTimer}, time.Now())
	text = channels.Clean(info.Name, channels.MaxName)
	s.c.titles.set(group, text)
	return text
}
