package main

import (
	"context"
	"encoding/hex"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"go.mau.fi/whatsmeow"
	"golang.org/x/sync/errgroup"

	"gateway/channels/whatsapp/whatsapptest"
)

// maxPersons is the number of people on WhatsApp. Each has a simulated phone, which takes processor
// time.
const maxPersons = 8

// onWhatsApp is the platform WhatsApp.
type onWhatsApp struct {
	*whatsapptest.Server
	url     string
	persons []*whatsapptest.Person
	stop    context.CancelFunc
	done    chan struct{} // closed when listen has ended

	mu   sync.Mutex
	said [maxPersons]time.Time // when each person last wrote
}

func newWhatsApp(ctx context.Context, heard func(answer)) (*onWhatsApp, error) {
	whatsmeow.WACertPubKey = whatsapptest.RootKey // for the persons' clients, too
	listening, stop := context.WithCancel(ctx)
	o := &onWhatsApp{Server: whatsapptest.New(nil), stop: stop, done: make(chan struct{})}
	var err error
	if o.url, err = o.Start(ctx); err != nil {
		stop()
		return nil, err
	}
	for i := range maxPersons {
		p, err := o.NewPerson(ctx, "Person "+strconv.Itoa(i+1), whatsapptest.Known)
		if err != nil {
			stop()
			o.Close()
			return nil, err
		}
		o.persons = append(o.persons, p)
	}
	go o.listen(listening, heard)
	return o, nil
}

// listen calls heard with each answer that a person sees, until ctx ends.
func (o *onWhatsApp) listen(ctx context.Context, heard func(answer)) {
	defer close(o.done)
	var seen [maxPersons]int
	_ = o.Wait(ctx, func() bool { // returns when ctx ends
		now := time.Now()
		for i, p := range o.persons {
			n := len(p.Texts())
			o.mu.Lock()
			took := now.Sub(o.said[i])
			o.mu.Unlock()
			for ; seen[i] < n; seen[i]++ {
				heard(answer{i, took})
			}
		}
		return false
	})
}

func (o *onWhatsApp) environ() []string {
	return []string{
		"GATEWAY_WHATSAPP_ROOT=" + hex.EncodeToString(whatsapptest.RootKey[:]),
		"GATEWAY_CHANNELS__WHATSAPP__API_URL=" + o.url,
		"GATEWAY_CHANNELS__WHATSAPP__ACCESS=open",
		"GATEWAY_CHANNELS__WHATSAPP__RATE_LIMIT=off",
		"GATEWAY_CHANNELS__WHATSAPP__SENDER_RATE=0",
		"GATEWAY_AGENT__QUEUE_MODE=followup", // a separate answer to each message
		"GATEWAY_AGENT__WAITING=1000",
	}
}

// prepare links a home with the account and unlinks the one before.
func (o *onWhatsApp) prepare(ctx context.Context, home string) error {
	o.LogOut()
	return o.PairFile(ctx, filepath.Join(home, "whatsapp-whatsapp.db"))
}

func (o *onWhatsApp) ready(ctx context.Context) error { return o.Wait(ctx, o.Connected) }

func (o *onWhatsApp) say(ctx context.Context, n size, text string) error {
	g, ctx := errgroup.WithContext(ctx)
	for i, p := range o.persons[:n.chats] {
		g.Go(func() error {
			for range n.messages {
				o.mu.Lock()
				o.said[i] = time.Now()
				o.mu.Unlock()
				if _, err := p.Say(ctx, text); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (*onWhatsApp) bursts() []size { return []size{{maxPersons, 1}, {maxPersons, 25}} }

func (o *onWhatsApp) close() {
	o.stop()
	<-o.done
	o.Close()
}
