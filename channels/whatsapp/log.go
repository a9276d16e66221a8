package whatsapp

import (
	"fmt"
	"log/slog"

	waBinary "go.mau.fi/whatsmeow/binary"
	waLog "go.mau.fi/whatsmeow/util/log"

	"gateway/channels"
)

// A clientLog writes the client's log to ours. It omits debug messages, which are whole stanzas.
// Where another message quotes a stanza, it shows only the tag.
type clientLog struct {
	log    *slog.Logger
	module string
	over   func() bool // the client is being stopped and complains about that
}

// newLog returns a log for the client that writes to log. over reports whether to leave out
// warnings and errors.
func newLog(log *slog.Logger, module string, over func() bool) waLog.Logger {
	return &clientLog{log, module, over}
}

func (l *clientLog) Sub(module string) waLog.Logger {
	return &clientLog{l.log, l.module + "/" + module, l.over}
}

func (l *clientLog) Debugf(string, ...any) {}

// Infof logs at level DEBUG. What the client considers worth telling is frequent.
func (l *clientLog) Infof(format string, args ...any) {
	l.log.Debug("whatsapp client", "module", l.module, "said", clientText(format, args))
}

// Warnf logs at level INFO: the client's warnings are temporary or caused by the other side.
func (l *clientLog) Warnf(format string, args ...any) {
	if !l.over() {
		l.log.Info("whatsapp client", "module", l.module, "said", clientText(format, args))
	}
}

// Errorf logs at level WARN. No person must act: if the client can't recover, the session ends with
// an error of its own.
func (l *clientLog) Errorf(format string, args ...any) {
	if !l.over() {
		l.log.Warn("whatsapp client", "module", l.module, "said", clientText(format, args))
	}
}

// clientText returns a message of the client as one line.
func clientText(format string, args []any) string {
	for i, a := range args {
		switch n := a.(type) {
		case *waBinary.Node:
			args[i] = "<" + n.Tag + ">"
		case waBinary.Node:
			args[i] = "<" + n.Tag + ">"
		}
	}
	return channels.Clean(fmt.Sprintf(format, args...), 300)
}
