package agent

import (
	"context"
	"errors"

	"gateway/bus"
	"gateway/memory/document"
)

// contactTurns is how many turns of a conversation may pass until somebody whom the agent has
// asked for a style has chosen one. After that it never asks again.
const contactTurns = 3

// unknown reports whether the person of a direct chat has chosen no style yet.
func (t *turn) unknown() bool {
	if t.env.Documents == nil || t.Scope == "" || t.group || t.isTask() || t.proactive() ||
		!t.role.AtLeast(bus.User) || !t.has("write_file") {
		return false
	}
	doc := t.env.Documents.In(t.Scope).Doc(document.User)
	return doc.Hash == "" && doc.Problem == ""
}

// noStyle is the document of somebody who has not chosen.
const noStyle = "# About this person\n\n- Style: default\n"

// settleStyle writes the default style down for somebody who was asked and has not chosen, so that
// they are not asked again.
func (t *turn) settleStyle(ctx context.Context) {
	if t.Number <= contactTurns || !t.unknown() {
		return
	}
	err := t.env.Documents.Save(t.Scope, document.User, noStyle, "")
	if err != nil && !errors.Is(err, document.ErrChanged) {
		t.logger().WarnContext(ctx, "style not written", "err", err)
	}
}
