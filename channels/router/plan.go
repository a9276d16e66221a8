package router

import (
	"context"
	"fmt"
	"strings"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/markup"
)

// A part is what people see of a delivery as one message.
type part struct {
	text    string
	file    *bus.Attachment // or nil
	content string          // of the file, if it is not among the media
	buttons []bus.Button
}

// maxParts is how many messages a text becomes. One that needs more is most probably a model's that
// does not find an end: on Telegram 1,500 messages would keep their chat busy for half an hour.
const maxParts = 20

// What stands after the first maxParts of a text that needs more.
const (
	sayWhole = "There is more of this than can be sent as messages. The whole text is in this file."
	sayRest  = "There is more of this than can be sent as messages. The rest is left out."
)

// plan returns the parts of d: its text, split if it is too long, and then its files. A short text
// becomes the first file's caption. Of a text that needs more than maxParts messages the rest comes
// as a file. A plan depends on nothing but the message and the limits, so
// that a later process makes the same; only how a text was split is noted, for it might come out
// otherwise in another version.
func (c *chat) plan(ctx context.Context, d *bus.Delivery, limits channels.Limits) []part {
	m := c.withheld(ctx, d.Message)
	text, buttons := m.Text, m.Buttons
	if len(buttons) > limits.Buttons {
		text, buttons = withButtons(text, buttons), nil
	}
	files := m.Attachments
	if captions(&m, text, files, limits) {
		rest := fileParts(files[1:], limits)
		return append([]part{{text: text, file: &files[0], buttons: buttons}}, rest...)
	}
	var parts []part
	for _, t := range c.texts(ctx, d, text, limits) {
		parts = append(parts, part{text: t})
	}
	if len(parts) == maxParts+1 && parts[maxParts].text == sayWhole {
		parts = withWhole(parts, text, limits)
	}
	if n := len(parts); n > 0 {
		parts[n-1].buttons = buttons
	}
	return append(parts, fileParts(files, limits)...)
}

// withWhole adds the whole text to parts as a file, the last part its caption if it can be.
func withWhole(parts []part, text string, limits channels.Limits) []part {
	whole := part{content: text, file: &bus.Attachment{Kind: bus.Document, Name: "whole.md",
		Type: "text/markdown", Size: int64(len(text))}}
	if limits.Caption > 0 && limits.Measure(sayWhole) <= limits.Caption {
		whole.text = sayWhole
		parts = parts[:maxParts]
	}
	return append(parts, whole)
}

// captions reports whether text goes with the first file.
func captions(
	m *bus.OutboundMessage, text string, files []bus.Attachment, limits channels.Limits,
) bool {
	return len(files) > 0 && text != "" && m.Stream == "" && fits(&files[0], limits) &&
		limits.Caption > 0 && limits.Measure(text) <= limits.Caption
}

// texts splits text if it is too long.
func (c *chat) texts(
	ctx context.Context, d *bus.Delivery, text string, limits channels.Limits,
) []string {
	if text == "" {
		return nil
	}
	// No byte counts for more than four units, so that most texts need not be measured.
	if len(d.Parts) == 0 && limits.Text > 0 && len(text) > limits.Text/4 {
		var parts []string
		err := c.guard(ctx, func() error {
			parts = markup.SplitFirst(text, limits.Text, maxParts+1, limits.Measure)
			return nil
		})
		if err == nil && len(parts) > 1 { // else the platform may refuse it
			if len(parts) > maxParts {
				parts[maxParts] = sayRest
				if int64(len(text)) <= limits.File {
					parts[maxParts] = sayWhole
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

// fits reports whether a file can be sent.
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

// notSent stands for a file that the channel can't send.
func notSent(f *bus.Attachment, limits channels.Limits) string {
	name := markup.Literal(channels.Clip(strings.Join(strings.Fields(f.Name), " "), 100))
	if limits.File == 0 {
		return fmt.Sprintf("[%s %s: files can't be sent here]", f.Kind, name)
	}
	const mb = 1 << 20
	return fmt.Sprintf("[%s %s: %.1f MB are more than the %d MB that can be sent here]",
		f.Kind, name, float64(f.Size)/mb, limits.File/mb)
}

// withButtons returns text with what its buttons would do.
func withButtons(text string, buttons []bus.Button) string {
	var b strings.Builder
	b.WriteString(text)
	b.WriteString("\n\n")
	end := ""
	for _, button := range buttons {
		if button.Number != 0 {
			fmt.Fprintf(&b, "%d. %s\n", button.Number, markup.Literal(button.Label))
			end = "\nSend the number, or answer in your own words."
			continue
		}
		fmt.Fprintf(&b, "- %s: send `%s`\n", markup.Literal(button.Label),
			strings.ReplaceAll(button.Text, "`", "'"))
	}
	return strings.TrimSuffix(b.String()+end, "\n")
}
