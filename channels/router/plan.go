package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/markup"
	"gateway/store/plaintext"
)

// A part is one of the platform's messages that make up a delivery.
type part struct {
	text    string
	file    *bus.Attachment // or nil
	content string          // content of the file, if it is not a stored file
	buttons []bus.Button
}

// maxParts is the maximum number of messages for one text. A longer text probably comes from a
// model that does not stop. On Telegram, 1,500 messages would block their chat for half an hour.
const maxParts = 20

// Notices after the first maxParts messages of a longer text.
const (
	textWholeInFile = "This text is too long to be sent as messages. " +
		"The whole text is in this file."
	textRestLeftOut = "This text is too long to be sent as messages. " +
		"The rest is left out."
)

// plan returns the parts of d: its text, split if it is too long, and then its files. A short text
// becomes the caption of the first file. If the text needs more than maxParts messages, the whole
// text follows as a file. The plan depends only on the message and the limits, so a later process
// gets the same one. Only the split of the text is stored, because another version of the gateway
// may split differently.
func (s *sender) plan(ctx context.Context, d *bus.Delivery, limits channels.Limits) []part {
	m := s.withheld(ctx, d.Message)
	text, buttons := m.Text, m.Buttons
	if len(buttons) > limits.Buttons {
		text, buttons = withChoices(text, buttons), nil
	}
	files := m.Attachments
	if captions(&m, text, files, limits) {
		rest := fileParts(files[1:], limits)
		return append([]part{{text: text, file: &files[0], buttons: buttons}}, rest...)
	}
	var parts []part
	for _, t := range s.texts(ctx, d, text, limits) {
		parts = append(parts, part{text: t})
	}
	if len(parts) == maxParts+1 && parts[maxParts].text == textWholeInFile {
		parts = appendFullText(parts, text, limits)
	}
	if n := len(parts); n > 0 {
		parts[n-1].buttons = buttons
	}
	return append(parts, fileParts(files, limits)...)
}

// appendFullText appends the whole text to parts as a file, with the last part as its caption if
// possible.
func appendFullText(parts []part, text string, limits channels.Limits) []part {
	whole := part{content: text, file: &bus.Attachment{Kind: bus.Document, Name: "whole.md",
		Type: "text/markdown", Size: int64(len(text))}}
	if limits.Caption > 0 && limits.Measure(textWholeInFile) <= limits.Caption {
		whole.text = textWholeInFile
		parts = parts[:maxParts]
	}
	return append(parts, whole)
}

// captions reports whether text becomes the caption of the first file.
func captions(
	m *bus.OutboundMessage, text string, files []bus.Attachment, limits channels.Limits,
) bool {
	return len(files) > 0 && text != "" && m.Stream == "" && fits(&files[0], limits) &&
		limits.Caption > 0 && limits.Measure(text) <= limits.Caption
}

// texts returns text, split if it is too long.
func (s *sender) texts(
	ctx context.Context, d *bus.Delivery, text string, limits channels.Limits,
) []string {
	if text == "" {
		return nil
	}
	if len(d.Parts) == 0 && limits.Text > 0 {
		var parts []string
		err := s.w.withRecover(ctx, func() error {
			// Most texts are short and only have to be measured, which is faster.
			if len(text) > limits.Text/4 || limits.Measure(text) > limits.Text {
				parts = markup.SplitFirst(text, limits.Text, maxParts+1, limits.Measure)
			}
			return nil
		})
		if err == nil && len(parts) > 1 { // otherwise the platform may refuse the text
			if len(parts) > maxParts {
				parts[maxParts] = textRestLeftOut
				if int64(len(text)) <= limits.File {
					parts[maxParts] = textWholeInFile
				}
			}
			d.Parts = parts
		}
	}
	if len(d.Parts) > 0 {
		return d.Parts
	}
	return []string{text}
}

// fits reports whether the channel can send a file.
func fits(f *bus.Attachment, limits channels.Limits) bool {
	return limits.File > 0 && f.Size <= limits.File
}

func fileParts(files []bus.Attachment, limits channels.Limits) []part {
	var parts []part
	for i := range files {
		if f := &files[i]; fits(f, limits) {
			parts = append(parts, part{file: f})
		} else {
			parts = append(parts, part{text: notSent(f, limits)})
		}
	}
	return parts
}

// A memoryFile is a file in memory.
type memoryFile struct{ *strings.Reader }

// Close implements [io.Closer].
func (memoryFile) Close() error { return nil }

// open returns the file of p, for a channel to read.
func (p part) open(stored Files) *bus.File {
	return &bus.File{Attachment: *p.file, Open: func() (io.ReadSeekCloser, error) {
		if p.content != "" {
			return memoryFile{strings.NewReader(p.content)}, nil
		}
		return stored.Open(p.file.Path)
	}}
}

// replaceFile reports whether the platform has refused the file of part n with err, and the message
// has more to say. It then replaces the part by its caption and the reason, so that people get the
// rest. If the platform refuses that, too, the message is given up. The plan of the next process
// has the file again.
func replaceFile(parts []part, n int, err error, limits channels.Limits) bool {
	p := &parts[n]
	alone := len(parts) == 1 && p.text == ""
	if p.file == nil || alone || !errors.Is(err, channels.ErrRefused) {
		return false
	}
	text := fmt.Sprintf("[%s %s could not be sent: %s]", p.file.Kind,
		markup.Literal(plaintext.Line(p.file.Name, 100)),
		markup.Literal(channels.Refusal(err.Error())))
	switch {
	case p.content != "":
		text = textRestLeftOut
	case p.text != "" && limits.Text > 0 && limits.Measure(p.text+"\n\n"+text) > limits.Text:
		text = p.text // a long caption leaves no room for the reason
	case p.text != "":
		text = p.text + "\n\n" + text
	}
	*p = part{text: text, buttons: p.buttons}
	return true
}

// notSent returns the text that replaces a file that the channel can't send.
func notSent(f *bus.Attachment, limits channels.Limits) string {
	name := markup.Literal(plaintext.Line(f.Name, 100))
	if limits.File == 0 {
		return fmt.Sprintf("[%s %s: files can't be sent here]", f.Kind, name)
	}
	const mb = 1 << 20
	return fmt.Sprintf("[%s %s: %.1f MB are more than the %d MB that can be sent here]",
		f.Kind, name, float64(f.Size)/mb, limits.File/mb)
}

// withChoices returns text with a description of its buttons, for channels without buttons.
func withChoices(text string, buttons []bus.Button) string {
	choices := make([]markup.Choice, len(buttons))
	for i, b := range buttons {
		choices[i] = markup.Choice(b)
	}
	return markup.WithChoices(text, choices)
}
