package agent

import (
	"context"

	"gateway/agent/turn"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// However many people write at once, so many sessions work at a time: see [turn.SessionsPerSlot].
// The others wait for their turn in the order in which they came, and take no more memory than
// their messages do.

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
	most := turn.SessionsPerSlot * cap(d.env.Calls.Slots)
	for len(d.lobby) > 0 && d.running < most && !d.isDraining() {
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
	d.mu.Lock()
	defer d.mu.Unlock()
	w.prove(true)
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

// holdBack reports whether the task r has to wait, because enough sub-agents of its session work.
// d.mu is held.
func (d *Dispatcher) holdBack(key session.Key, r bus.Received) bool {
	parent := key.Parent()
	if parent == "" || d.tasks[parent] < turn.MaxTasks {
		return false
	}
	d.queued[parent] = append(d.queued[parent], r)
	return true
}

// taskEnded counts that a sub-agent works no more, and lets the next one begin. d.mu is held.
func (d *Dispatcher) taskEnded(work context.Context, key session.Key) {
	parent := key.Parent()
	if parent == "" {
		return
	}
	if d.tasks[parent]--; d.tasks[parent] <= 0 {
		delete(d.tasks, parent)
	}
	queue := d.queued[parent]
	if len(queue) == 0 || d.isDraining() {
		return
	}
	if d.queued[parent] = queue[1:]; len(queue) == 1 {
		delete(d.queued, parent)
	}
	next := queue[0]
	d.start(work, session.Of(next.Message), &worker{waiting: []bus.Received{next}})
}
