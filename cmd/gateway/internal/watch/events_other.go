//go:build !linux

package watch

import (
	"sync"

	"github.com/fsnotify/fsnotify"
)

// newEvents uses what the system has, by fsnotify.
func newEvents() (*events, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	changed, closed := make(chan string), make(chan struct{})
	var passing sync.WaitGroup
	passing.Go(func() {
		for e := range w.Events {
			select {
			case changed <- e.Name:
			case <-closed:
			}
		}
	})
	return &events{changed: changed, troubles: w.Errors, add: w.Add, close: func() error {
		close(closed)
		err := w.Close()
		passing.Wait()
		return err
	}}, nil
}
