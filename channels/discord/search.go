package discord

import (
	"context"
	"errors"
	"net/url"
	"slices"

	"github.com/bwmarrin/discordgo"

	"gateway/channels"
)

// A search looks for listed channels that the gateway must read after a gap although nothing of
// them is stored yet.
type search struct {
	c      *Channel
	places *directory
	found  chan []place // listed channels and threads with new messages
}

// run finds the listed channels and their threads with messages newer than since. It ends when all
// are looked up or ctx is done. It does not find threads that are archived again. The feed runs it
// as a goroutine of its own and receives the results from found.
func (s *search) run(ctx context.Context, since uint64) {
	guilds := make(map[string]bool)
	for _, id := range *s.c.groups.Load() {
		var p place
		ok := s.retryForever(ctx, id, func() (err error) {
			p, err = s.places.lookUp(ctx, id, anyLimit)
			return err
		})
		if !ok {
			continue
		}
		s.report(ctx, since, []place{p})
		// One request returns the active threads of the whole guild, also those of a listed forum.
		if p.Guild == "" || guilds[p.Guild] {
			continue
		}
		guilds[p.Guild] = true
		var answer struct {
			Threads []place `json:"threads"`
		}
		address := discordgo.EndpointGuildActiveThreads(url.PathEscape(p.Guild))
		if s.retryForever(ctx, id, func() error {
			return retry(ctx, anyLimit, func() error {
				return s.c.get(ctx, address, &answer)
			})
		}) {
			s.report(ctx, since, answer.Threads)
		}
	}
}

// retryForever calls call until it succeeds, is refused, or ctx is done. It reports whether call
// succeeded.
func (s *search) retryForever(ctx context.Context, id string, call func() error) bool {
	for {
		err := call()
		if err == nil {
			return true
		}
		_, refused := errors.AsType[*channels.AccountError](err)
		if refused = refused || errors.Is(err, channels.ErrRefused); ctx.Err() == nil {
			s.c.log.WarnContext(ctx, "listed channel can't be looked up; messages in it, "+
				"or in its new threads, from the time of the gap may be lost",
				"account", s.c.name, "chat", id, "final", refused, "err", err)
		}
		if refused || !channels.Sleep(ctx, s.c.opts.Postpone) {
			return false
		}
	}
}

// forumTypes are the types of channels that have threads but no messages.
var forumTypes = []int{int(discordgo.ChannelTypeGuildForum), int(discordgo.ChannelTypeGuildMedia),
	int(discordgo.ChannelTypeGuildCategory)}

// report passes on those channels of list that are listed and have new messages.
func (s *search) report(ctx context.Context, since uint64, list []place) {
	list = slices.DeleteFunc(list, func(p place) bool {
		return idNumber(p.Last) <= since || !isListed(&p, *s.c.groups.Load()) ||
			slices.Contains(forumTypes, p.Type)
	})
	if len(list) == 0 {
		return
	}
	select {
	case s.found <- list:
	case <-ctx.Done():
	}
}

// isListed reports whether groups, the chats of the configuration, contain p or its parent channel.
func isListed(p *place, groups []string) bool {
	in := p.message("")
	return slices.Contains(groups, in.From.Chat)
}
