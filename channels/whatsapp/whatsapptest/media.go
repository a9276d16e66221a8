package whatsapptest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
)

// mediaAuth is the token that clients must send with uploads.
const mediaAuth = "media-auth"

// maxUpload is the maximum size of a file in bytes.
const maxUpload = 1 << 28

// upload stores an encrypted file.
func (s *Server) upload(w http.ResponseWriter, r *http.Request) {
	if !s.open(w, r) {
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxUpload))
	token, tokenErr := base64.URLEncoding.DecodeString(r.PathValue("token"))
	sum := sha256.Sum256(body)
	if err != nil || tokenErr != nil || string(token) != string(sum[:]) ||
		r.URL.Query().Get("auth") != mediaAuth {
		s.violation("bad upload %s", r.URL.Path)
		http.Error(w, "bad upload", http.StatusBadRequest)
		return
	}
	name := "/v/" + r.PathValue("token")
	s.mu.Lock()
	s.media[name] = body
	s.changed.Notify()
	s.mu.Unlock()
	answer, _ := json.Marshal(map[string]string{ // strings always marshal
		"url":         "https://mmg.whatsapp.net" + name + "?ccb=1",
		"direct_path": name + "?ccb=1",
	})
	_, _ = w.Write(answer) // the client may be gone
}

// download returns an encrypted file.
func (s *Server) download(w http.ResponseWriter, r *http.Request) {
	if !s.open(w, r) {
		return
	}
	s.mu.Lock()
	body, ok := s.media["/v/"+r.PathValue("name")]
	status, broken := s.mediaStatus, s.breakMedia > 0
	if broken {
		s.breakMedia--
	}
	s.mu.Unlock()
	switch {
	case status != 0:
		w.WriteHeader(status)
	case !ok:
		http.NotFound(w, r)
	case broken:
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body[:len(body)/2]) // the error comes below
		panic(http.ErrAbortHandler)        // closes the connection
	default:
		_, _ = w.Write(body) // the client may be gone
	}
}

// SetMediaStatus makes downloads fail with an HTTP status; 0 lets them succeed.
func (s *Server) SetMediaStatus(status int) { s.change(func() { s.mediaStatus = status }) }

// BreakMedia makes the next n downloads end after half of the file.
func (s *Server) BreakMedia(n int) { s.change(func() { s.breakMedia = n }) }

// SpoilMedia changes a byte of every stored file.
func (s *Server) SpoilMedia() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.media {
		b[0]++
	}
}
