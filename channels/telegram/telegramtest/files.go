package telegramtest

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // to read the size of photos
	_ "image/png"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// A File is a file that a person or the bot sends.
type File struct {
	// Kind is the field of the Bot API's Message: "photo", "video", "video_note", "animation",
	// "voice", "audio", "document" or "sticker". For a file from the bot it depends on the method.
	Kind    string
	Name    string
	Type    string // MIME type according to the sender
	Data    []byte
	Size    int64  // overrides the length of Data
	Seconds int    // of sound or video
	Emoji   string // of a sticker
}

// Limits of files.
const (
	maxDownload    = 20 << 20
	maxUpload      = 50 << 20
	maxLocalUpload = 2000 << 20
	maxPhoto       = 10 << 20
	maxCaption     = 1024
)

// A stored is a file whose id the bot has.
type stored struct {
	id, path string
	data     []byte // nil if the file no longer exists
	size     int64
}

// keepFile stores f and returns it in the Bot API's form. s.mu is held.
func (s *Server) keepFile(f *File) any {
	if f.Kind == "photo" {
		c, _, err := image.DecodeConfig(bytes.NewReader(f.Data))
		if err != nil { // test data need not be an image
			c.Width, c.Height = 800, 600
		}
		small := s.describe(&File{Data: []byte("thumbnail"), Kind: "photo"})
		small["width"], small["height"] = 90, 67
		large := s.describe(f)
		large["width"], large["height"] = c.Width, c.Height
		return []any{small, large}
	}
	w := s.describe(f)
	for name, value := range map[string]string{
		"file_name": f.Name, "mime_type": f.Type, "emoji": f.Emoji,
	} {
		if value != "" {
			w[name] = value
		}
	}
	if f.Seconds > 0 {
		w["duration"] = f.Seconds
	}
	return w
}

func (s *Server) describe(f *File) map[string]any {
	n := strconv.Itoa(len(s.files) + 1)
	file := &stored{id: "AgAD-" + n, data: f.Data, size: f.Size}
	file.path = f.Kind + "s/file_" + n + path.Ext(f.Name)
	if file.size == 0 {
		file.size = int64(len(f.Data))
	}
	s.files[file.id] = file
	return map[string]any{
		"file_id": file.id, "file_unique_id": "AQAD" + n, "file_size": file.size,
	}
}

// ForgetFiles removes the content of all files. Their ids stay.
func (s *Server) ForgetFiles() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		f.data = nil
	}
}

// getFile answers with the path of a file. s.mu is held.
func (s *Server) getFile(c call) reply {
	f := s.files[c.params.Get("file_id")]
	switch {
	case f == nil:
		return refuse(http.StatusBadRequest, "Bad Request: invalid file_id")
	case f.size > maxDownload && s.opts.LocalFiles == "":
		return refuse(http.StatusBadRequest, "Bad Request: file is too big")
	}
	where := f.path
	if s.opts.LocalFiles != "" {
		where = filepath.Join(s.opts.LocalFiles, s.token, filepath.FromSlash(f.path))
		if err := writeFile(where, f.data); err != nil {
			return refuse(http.StatusInternalServerError, "Internal Server Error: "+err.Error())
		}
	}
	return reply{result: map[string]any{
		"file_id": f.id, "file_unique_id": f.id, "file_size": f.size, "file_path": where,
	}}
}

// writeFile writes data to a file, or removes the file if data is nil.
func writeFile(name string, data []byte) error {
	if data == nil {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o600)
}

// serveFile serves the download of a file.
func (s *Server) serveFile(w http.ResponseWriter, c call) {
	if data := s.content(c.params.Get("path")); data != nil {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		_, _ = w.Write(data) // the client may be gone
		return
	}
	write(w, refuse(http.StatusNotFound, "Not Found"))
}

func (s *Server) content(path string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		if f.path == path && s.opts.LocalFiles == "" {
			return f.data
		}
	}
	return nil
}

// parse reads the parameters of a call and its file.
func (s *Server) parse(w http.ResponseWriter, r *http.Request, c *call) reply {
	limit := int64(maxUpload)
	if s.opts.LocalFiles != "" {
		limit = maxLocalUpload
	}
	tooLarge := refuse(http.StatusRequestEntityTooLarge, "Request Entity Too Large")
	if r.ContentLength > limit+1<<20 {
		return tooLarge
	}
	r.Body = http.MaxBytesReader(w, r.Body, limit+1<<20)
	err := r.ParseForm()
	if strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/form-data") {
		err = r.ParseMultipartForm(1 << 20)
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge
	}
	if err != nil {
		return refuse(http.StatusBadRequest, "Bad Request: "+err.Error())
	}
	c.params = r.Form
	if r.MultipartForm == nil {
		return reply{}
	}
	defer func() { _ = r.MultipartForm.RemoveAll() }() // temporary files; the system removes them, too
	for field, headers := range r.MultipartForm.File {
		f, err := headers[0].Open()
		if err != nil {
			return refuse(http.StatusInternalServerError, "Internal Server Error: "+err.Error())
		}
		data, err := io.ReadAll(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return refuse(http.StatusInternalServerError, "Internal Server Error: "+err.Error())
		}
		if int64(len(data)) > limit {
			return tooLarge
		}
		c.params.Set(field, "attach")
		c.upload = &File{
			Kind: field, Name: headers[0].Filename, Type: headers[0].Header.Get("Content-Type"),
			Data: data,
		}
	}
	return reply{}
}

// uploaded returns the file in c, which has the name of the method.
func (c *call) uploaded() (*File, reply) {
	kind := strings.ToLower(strings.TrimPrefix(c.method, "send"))
	f := c.upload
	switch {
	case f == nil || f.Kind != kind:
		return nil, refuse(http.StatusBadRequest, "Bad Request: there is no "+kind+" in the request")
	case len(f.Data) == 0:
		return nil, refuse(http.StatusBadRequest, "Bad Request: file must be non-empty")
	case kind == "photo":
		if refused := checkPhoto(f.Data); refused.code != 0 {
			return nil, refused
		}
	}
	f.Seconds = c.int("duration")
	return f, reply{}
}

// checkPhoto checks the limits of sendPhoto.
func checkPhoto(data []byte) reply {
	if len(data) > maxPhoto {
		return refuse(http.StatusBadRequest, fmt.Sprintf("Bad Request: File of size %d bytes is "+
			"too big for a photo; the maximum size is %d bytes", len(data), maxPhoto))
	}
	if bytes.HasPrefix(data, []byte("RIFF")) && len(data) > 12 && string(data[8:12]) == "WEBP" {
		return reply{}
	}
	c, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return refuse(http.StatusBadRequest, "Bad Request: IMAGE_PROCESS_FAILED")
	}
	long, short := max(c.Width, c.Height), min(c.Width, c.Height)
	if long+short > 10_000 || long > 20*short {
		return refuse(http.StatusBadRequest, "Bad Request: PHOTO_INVALID_DIMENSIONS")
	}
	return reply{}
}
