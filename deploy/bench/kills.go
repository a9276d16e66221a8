package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// A kill -9 comes amid a burst of killChats chats, killRuns times.
const (
	killChats = 200
	killRuns  = 12
)

// kills are the answers that came twice, of each burst that a kill -9 has interrupted: those that
// the platform had and that were not yet noted as sent.
type kills struct {
	Chats   int   `json:"chats"`
	Doubled []int `json:"doubled"` // by burst, the fewest first
	Lost    int   `json:"lost"`    // of all bursts
}

// kills kills the gateway when a part of the answers is there, starts it again, and counts.
func (b *bench) kills(ctx context.Context) (*kills, error) {
	b.delay.Store(0)
	k := &kills{Chats: killChats}
	for i := range killRuns {
		answered := make(map[int]int)
		if err := b.interrupt(ctx, killChats*(i+1)/(killRuns+1), answered); err != nil {
			return nil, err
		}
		doubled := 0
		for _, n := range answered {
			doubled += max(n-1, 0)
		}
		k.Doubled = append(k.Doubled, doubled)
		k.Lost += killChats - len(answered)
	}
	slices.Sort(k.Doubled)
	return k, nil
}

// interrupt has killChats people write and kills the gateway after so many answers. The next one
// goes on. When both have ended, answered says how many answers each chat has.
func (b *bench) interrupt(ctx context.Context, after int, answered map[int]int) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	p, _, err := b.start(ctx, workHome)
	if err != nil {
		return err
	}
	b.take()
	if err := b.platform.say(ctx, size{killChats, 1}, "hello"); err != nil {
		return err
	}
	count := func(list []answer) {
		for _, a := range list {
			answered[a.chat]++
		}
	}
	list, err := b.wait(ctx, after)
	if err != nil {
		return err
	}
	count(list)
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = p.cmd.Wait() // it was killed
	return b.with(ctx, workHome, func(*process) error {
		for len(answered) < killChats {
			list, err := b.wait(ctx, 1)
			if err != nil {
				return fmt.Errorf("after a kill in %s: %w", filepath.Join(b.dir, workHome), err)
			}
			count(list)
		}
		select {
		case <-time.After(time.Second): // for what comes twice
		case <-ctx.Done():
		}
		count(b.take())
		return nil
	})
}
