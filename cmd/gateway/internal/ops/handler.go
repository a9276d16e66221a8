package ops

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
)

// handler returns the handler for all paths. local says whether the server listens on loopback.
func (s *Server) handler(local bool) http.Handler {
	open := s.private
	if local {
		open = s.local
	}
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", open(http.HandlerFunc(serveAlive)))
	mux.Handle("GET /readyz", open(http.HandlerFunc(s.serveReady)))
	if s.opts.Metrics != nil {
		mux.Handle("GET /metrics", open(s.opts.Metrics))
	}
	if s.opts.Hooks != nil {
		mux.Handle("POST /hooks/{name}", s.opts.Hooks)
	}
	if s.opts.Operator != nil {
		mux.Handle("/operator/", s.private(s.opts.Operator))
	}
	// Importing pprof also registers handlers with http.DefaultServeMux, which is not used here.
	for pattern, h := range map[string]http.HandlerFunc{
		"GET /debug/pprof/": pprof.Index, "GET /debug/pprof/cmdline": pprof.Cmdline,
		"GET /debug/pprof/profile": pprof.Profile, "GET /debug/pprof/symbol": pprof.Symbol,
		"GET /debug/pprof/trace": pprof.Trace,
	} {
		mux.Handle(pattern, s.private(h))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Browsers must not guess the content type, and nobody may cache the response.
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		mux.ServeHTTP(w, r)
	})
}

// local serves callers that use a loopback name. Other host names are refused, because a web page
// could use its own name for this address (DNS rebinding). A token is optional, but a wrong one
// is refused, so that a caller with the token of another gateway notices. Requests forwarded by a
// proxy need the token, since many proxies connect from a loopback address.
func (s *Server) local(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		configured, _, _ := net.SplitHostPort(s.listen) // the configuration was validated
		if !IsLoopback(host) && host != configured {
			http.Error(w, "call this server by a loopback address", http.StatusMisdirectedRequest)
			return
		}
		if (r.Header.Get("Authorization") != "" || isForwarded(r)) && !s.allowed(r) {
			refuse(w)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// isForwarded reports whether a proxy forwarded r.
func isForwarded(r *http.Request) bool {
	names := []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip"}
	return slices.ContainsFunc(names, func(name string) bool { return r.Header.Get(name) != "" })
}

// private serves only callers that have the operator's token.
func (s *Server) private(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.allowed(r) {
			refuse(w)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func refuse(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="gateway"`)
	http.Error(w, "want the operator's token: Authorization: Bearer TOKEN", http.StatusUnauthorized)
}

// allowed reports whether r has the operator's token. It compares in constant time.
func (s *Server) allowed(r *http.Request) bool {
	got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
	want := sha256.Sum256([]byte("Bearer " + s.opts.Token))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

func serveAlive(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n")) // the caller may have disconnected
}

// serveReady writes the result of each check as JSON.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	report := s.opts.Ready.Report(r.Context())
	w.Header().Set("Content-Type", "application/json")
	if !report.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(report) // the caller may have disconnected
}
