package telegram

import (
	"image"
	_ "image/jpeg" // to read the size of photos
	_ "image/png"
	"io"
	"mime"
	"path"
	"strconv"
	"strings"

	"gateway/bus"
)

// Limits of sendPhoto.
const (
	maxPhoto      = 10 << 20 // bytes
	maxPhotoSides = 10_000   // pixels, width and height together
	maxPhotoRatio = 20       // longer to shorter side
)

// setFile chooses the method for f. A file that Telegram would refuse as its own type is sent as a
// document.
func (o *outgoing) setFile(f *bus.File) {
	kind := sendAs(f)
	name := fileName(strings.Map(noSlash, f.Name))
	if name == "" {
		name = string(kind) + extension(mimeType(f.Type, ""))
	}
	o.file = &attached{field: string(kind), name: name, file: f}
	switch kind {
	case bus.Photo:
		o.method = "sendPhoto"
	case bus.Video:
		o.method = "sendVideo"
		o.params["supports_streaming"] = "true"
	case bus.Animation:
		o.method = "sendAnimation"
	case bus.Voice:
		o.method = "sendVoice"
	case bus.Audio:
		o.method = "sendAudio"
	default:
		o.setDocument()
		return
	}
	if f.Seconds > 0 && kind != bus.Photo {
		o.params["duration"] = strconv.Itoa(f.Seconds)
	}
}

// setDocument makes o send its file as a document. sendDocument does not have the removed
// parameters.
func (o *outgoing) setDocument() {
	o.method, o.file.field = "sendDocument", string(bus.Document)
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
	switch mimeType { // types for which the system's list has several extensions or none
	case "image/jpeg":
		return ".jpg"
	case "audio/ogg":
		return ".ogg"
	case "audio/mpeg":
		return ".mp3"
	case "audio/mp4":
		return ".m4a"
	case "video/mp4":
		return ".mp4"
	case "video/webm":
		return ".webm"
	case "text/plain":
		return ".txt"
	}
	if all, err := mime.ExtensionsByType(mimeType); err == nil && len(all) > 0 {
		return all[0]
	}
	return ""
}

// sendAs returns the best kind for sending f: the kind that its sender says, otherwise the kind of
// its type.
func sendAs(f *bus.File) bus.Kind {
	t := mimeType(f.Type, mimeType(mime.TypeByExtension(path.Ext(f.Name)), ""))
	kind := f.Kind
	// A sticker of another platform is a picture or a video.
	if kind == "" || kind == bus.Sticker {
		class, _, _ := strings.Cut(t, "/")
		switch class {
		case "image":
			kind = bus.Photo
		case "video":
			kind = bus.Video
		case "audio":
			kind = bus.Audio
		}
	}
	// As a photo a GIF would stand still.
	if t == "image/gif" && kind != bus.Document {
		return bus.Animation
	}
	if showsAs(kind, t) && (kind != bus.Photo || isPhoto(f)) {
		return kind
	}
	return bus.Document
}

// showsAs reports whether Telegram shows files of the type as the kind.
func showsAs(kind bus.Kind, mimeType string) bool {
	switch kind {
	case bus.Photo:
		return mimeType == "image/jpeg" || mimeType == "image/png" || mimeType == "image/webp"
	case bus.Video, bus.Animation:
		return mimeType == "video/mp4"
	case bus.Voice:
		switch mimeType {
		case "audio/ogg", "audio/opus", "application/ogg":
			return true
		}
		// A voice message may also be MP3 or MPEG-4 audio.
		return showsAs(bus.Audio, mimeType)
	case bus.Audio:
		switch mimeType {
		case "audio/mpeg", "audio/mp3", "audio/mp4", "audio/x-m4a", "audio/m4a":
			return true
		}
	}
	return false
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
	for _, words := range []string{
		"PHOTO_", "IMAGE_PROCESS_FAILED", "VOICE_MESSAGES_FORBIDDEN",
		"restricted receiving of voice messages",
	} {
		if hasText(err, words) {
			return true
		}
	}
	return false
}
