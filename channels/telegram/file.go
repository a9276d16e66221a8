package telegram

import (
	"cmp"
	"image"
	_ "image/jpeg" // to read the size of photos
	_ "image/png"
	"io"
	"mime"
	"path"
	"slices"
	"strconv"
	"strings"

	"gateway/bus"
	"gateway/channels"
)

// Limits of sendPhoto.
const (
	maxPhoto      = 10 << 20 // bytes
	maxPhotoSides = 10_000   // pixels, width and height together
	maxPhotoRatio = 20       // longer to shorter side
)

// methods has the method for sending a file as each kind.
var methods = map[bus.Kind]string{
	bus.Photo:     "sendPhoto",
	bus.Video:     "sendVideo",
	bus.Animation: "sendAnimation",
	bus.Voice:     "sendVoice",
	bus.Audio:     "sendAudio",
	bus.Document:  "sendDocument",
}

// shown has the types of files that Telegram shows as each kind.
var shown = map[bus.Kind][]string{
	bus.Photo:     {"image/jpeg", "image/png", "image/webp"},
	bus.Video:     {"video/mp4"},
	bus.Animation: {"video/mp4"},
	bus.Audio:     {"audio/mpeg", "audio/mp3", "audio/mp4", "audio/x-m4a", "audio/m4a"},
	bus.Voice: {"audio/ogg", "audio/opus", "application/ogg",
		"audio/mpeg", "audio/mp3", "audio/mp4", "audio/x-m4a", "audio/m4a"},
}

// extensions has the extensions of types for which the system's list has several or none.
var extensions = map[string]string{
	"image/jpeg": ".jpg",
	"audio/ogg":  ".ogg",
	"audio/mpeg": ".mp3",
	"audio/mp4":  ".m4a",
	"video/mp4":  ".mp4",
	"video/webm": ".webm",
	"text/plain": ".txt",
}

// setFile chooses the method for f. A file that Telegram would refuse as its own type is sent as a
// document.
func (o *outgoing) setFile(f *bus.File) {
	kind := sendAs(f)
	name := fileName(strings.Map(noSlash, f.Name))
	if name == "" {
		name = string(kind) + extension(channels.MIMEType(f.Type))
	}
	o.file = &attached{field: string(kind), name: name, file: f}
	o.method = methods[kind]
	if kind == bus.Video {
		o.params["supports_streaming"] = "true"
	}
	if f.Seconds > 0 && kind != bus.Photo && kind != bus.Document {
		o.params["duration"] = strconv.Itoa(f.Seconds)
	}
}

// setDocument makes o send its file as a document. sendDocument does not have the removed
// parameters.
func (o *outgoing) setDocument() {
	o.method, o.file.field = methods[bus.Document], string(bus.Document)
	delete(o.params, "duration")
	delete(o.params, "supports_streaming")
}

// noSlash keeps a name from looking like a path.
func noSlash(r rune) rune {
	if r == '/' || r == '\\' {
		return '_'
	}
	return r
}

// extension returns the usual extension of a type, or "".
func extension(mimeType string) string {
	if all, err := mime.ExtensionsByType(mimeType); err == nil && len(all) > 0 {
		return cmp.Or(extensions[mimeType], all[0])
	}
	return extensions[mimeType]
}

// sendAs returns the best kind for sending f: the kind that its sender says, otherwise the kind of
// its type.
func sendAs(f *bus.File) bus.Kind {
	t := cmp.Or(channels.MIMEType(f.Type),
		channels.MIMEType(mime.TypeByExtension(path.Ext(f.Name))))
	kind := f.Kind
	// A sticker of another platform is a picture or a video.
	if kind == "" || kind == bus.Sticker {
		kind = bus.KindOf(t)
	}
	// As a photo a GIF would stand still.
	if t == "image/gif" && kind != bus.Document {
		return bus.Animation
	}
	if slices.Contains(shown[kind], t) && (kind != bus.Photo || isPhoto(f)) {
		return kind
	}
	return bus.Document
}

// isPhoto reports whether f is within the limits of photos, as far as f shows that.
func isPhoto(f *bus.File) bool {
	content, err := f.Open()
	if err != nil {
		return true // sending it will show
	}
	defer content.Close()
	size, err := content.Seek(0, io.SeekEnd)
	if err != nil || size > maxPhoto {
		return false
	}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return false
	}
	// This reads only the header. A small file may hold a picture that needs gigabytes of memory.
	c, _, err := image.DecodeConfig(content)
	if err != nil {
		return true // WebP or damaged: Telegram decides
	}
	long, short := max(c.Width, c.Height), min(c.Width, c.Height)
	return short > 0 && long+short <= maxPhotoSides && long <= short*maxPhotoRatio
}

// refusedMedia reports whether Telegram can't send a file as the chosen kind: a photo that it does
// not understand, or a voice message to a person who blocks them.
func refusedMedia(err error) bool {
	return slices.ContainsFunc([]string{"PHOTO_", "IMAGE_PROCESS_FAILED", "VOICE_MESSAGES_FORBIDDEN",
		"restricted receiving of voice messages"},
		func(words string) bool { return hasText(err, words) })
}
