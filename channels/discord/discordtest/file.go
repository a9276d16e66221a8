package discordtest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A storedFile is a file of a message.
type storedFile struct {
	File
	id, channel string
}

// wireFile describes f with a link that is valid for some time. The link names Discord's own host.
func (s *Server) wireFile(f storedFile) map[string]any {
	path := "/attachments/" + f.channel + "/" + f.id + "/" + url.PathEscape(f.Name)
	until := strconv.FormatInt(time.Now().Add(s.opts.LinkTime).UnixMilli(), 16)
	return map[string]any{
		"id": f.id, "filename": f.Name, "content_type": f.Type, "size": len(f.Content),
		"url": fmt.Sprintf("https://cdn.discordapp.com%s?ex=%s&hm=%s",
			path, until, s.sign(path, until)),
	}
}

// sign returns the signature of a link. The caller holds s.mu.
func (s *Server) sign(path, until string) string {
	h := hmac.New(sha256.New, s.secret)
	fmt.Fprint(h, path, "?", until)
	return hex.EncodeToString(h.Sum(nil))
}

// serveFile serves the file of a link if the link has our signature and has not expired.
func (s *Server) serveFile(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		http.Error(w, "the token was shown to the file host", http.StatusTeapot)
		return
	}
	until, err := strconv.ParseInt(r.URL.Query().Get("ex"), 16, 64)
	s.mu.Lock()
	signed := s.sign(r.URL.EscapedPath(), r.URL.Query().Get("ex"))
	s.mu.Unlock()
	if err != nil || !hmac.Equal([]byte(signed), []byte(r.URL.Query().Get("hm"))) ||
		time.Now().After(time.UnixMilli(until)) {
		http.Error(w, "This content is no longer available.", http.StatusNotFound)
		return
	}
	parts := strings.Split(r.URL.Path, "/") // "", attachments, channel, file, name
	f, ok := s.file(parts[2], parts[3])
	if !ok {
		http.Error(w, "no such file", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", f.Type)
	w.Header().Set("Content-Length", strconv.Itoa(len(f.Content)))
	_, _ = w.Write(f.Content) // the client may be gone
}

// file returns a file of a message that is still there.
func (s *Server) file(channelID, id string) (File, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.channels[channelID]
	if ch == nil {
		return File{}, false
	}
	for _, m := range ch.messages {
		i := slices.IndexFunc(m.files, func(f storedFile) bool { return f.id == id })
		if i >= 0 && !m.sent.Deleted {
			return m.files[i].File, true
		}
	}
	return File{}, false
}

// ExpireLinks makes every link that was given out so far invalid.
func (s *Server) ExpireLinks() {
	s.change(func() { s.secret = append([]byte("new "), s.secret...) })
}
