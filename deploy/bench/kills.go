package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// The gateway is killed with kill -9 during a burst of killChats chats, killRuns times.
const (
	killChats = 200
	killRuns  = 12
)

// kills counts the answers that people got twice: the platform had them, but the killed gateway had
// not recorded that yet.
type kills struct {
	Chats   int   `json:"chats"`
	Doubled []int `json:"doubled"` // by burst, in ascending order
	Lost    int   `json:"lost"`    // in all bursts
}

// kills kills the gateway after a part of the answers, starts it again, and counts the answers.
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

// interrupt makes killChats people write and kills the gateway after a number of answers. Then it
// starts the gateway again and waits for the other answers. It adds the number of answers by chat
// to answered.
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
		case <-time.After(time.Second): // second answers may still arrive
		case <-ctx.Done():
		}
		count(b.take())
		return nil
	})
}
