package agent

import (
	"context"

	"gateway/session"
	"gateway/store"
)

// However many people write at once: so many sessions, in times of the slots, work at a time. The
// others wait for their turn in the order in which they came, and take no more memory than their
// messages do.
const admitted = 4

// start adds w as the worker of key, and runs it once it is admitted. d.mu is held.
func (d *Dispatcher) start(work context.Context, key session.Key, w *worker) {
	w.d, w.key, w.wake = d, key, make(chan struct{}, 1)
	d.workers[key] = w
	if parent := key.Parent(); parent != "" {
		d.tasks[parent]++
	}
	d.lobby = append(d.lobby, w)
	d.admit(work)
}

// admit runs the workers for which there is room. d.mu is held.
func (d *Dispatcher) admit(work context.Context) {
	for len(d.lobby) > 0 && d.running < admitted*cap(d.slots) && !d.isDraining() {
		w := d.lobby[0]
		d.lobby[0] = nil
		d.lobby = d.lobby[1:]
		d.running++
		d.wg.Go(func() {
			defer d.ended(work, w)
			if err := w.run(work); err != nil {
				select {
				case d.fatal <- err:
				default: // an earlier error ends Run already
				}
			}
		})
	}
}

// ended notes that w works no more, and admits others.
func (d *Dispatcher) ended(work context.Context, w *worker) {
	w.prove(true)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running--
	d.taskEnded(work, w.key)
	d.admit(work)
}

// leaveLobby leaves the turns that were not even resumed to the next process. Nobody admits any
// more.
func (d *Dispatcher) leaveLobby(ctx context.Context) error {
	return d.DB.Tx(ctx, func(tx *store.Tx) error {
		for _, w := range d.lobby {
			if w.resume == nil {
				continue
			}
			if err := d.sessions.HandOver(tx, w.resume); err != nil {
				return err
			}
		}
		return nil
	})
}
