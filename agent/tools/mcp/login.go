package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"
)

// The values of [OAuth.Grant].
const (
	AuthorizationCode = "authorization_code" // a person logs in with a link
	ClientCredentials = "client_credentials" // the gateway logs in with its own credentials
	CrossApp          = "cross_app_access"   // with the identity token of an enterprise
)

// An OAuth configures the login to a server. With the zero value, the gateway registers with the
// server's authorization server and a person logs in.
type OAuth struct {
	Grant        string // "" is AuthorizationCode
	ClientID     string // "" registers a client; an https URL is a metadata document's
	ClientSecret string // secret
	PrivateKey   string // PEM key with which the client signs its assertions; secret
	Redirect     string // where the browser is sent at the end; "" is DefaultRedirect

	// For CrossApp: the URL where the identity token is exchanged, the gateway's client ID there,
	// and the file with the token. The file is read for each exchange.
	IdentityURL, IdentityClientID, IdentityFile string
}

// machine reports whether the gateway logs in without a person.
func (o OAuth) machine() bool { return o.Grant == ClientCredentials || o.Grant == CrossApp }

// DefaultRedirect is the address to which a login sends the browser. No program needs to listen
// there: the address itself contains what the gateway needs.
const DefaultRedirect = "http://localhost:33418/callback"

// loginTime is how long a person has to log in.
const loginTime = 15 * time.Minute

// A grant is the result of a login. It is stored in a file.
type grant struct {
	URL    string        `json:"url"` // of the server; other servers do not get the token
	Client oauth2.Config `json:"client"`
	Token  *oauth2.Token `json:"token,omitempty"`

	// Resource names the server in requests for tokens. Some authorization servers refuse to renew a
	// token without it (RFC 8707). Older logins have none.
	Resource string `json:"resource,omitempty"`

	// Wanted are the scopes that the server has requested since the login.
	Wanted []string `json:"wanted,omitempty"`

	// Begun is a hash of the state of the newest login that somebody has begun. A login does not
	// survive a restart. With Begun, the gateway can tell the person so.
	Begun string `json:"begun,omitempty"`
}

// An authChallenge describes a refused request for which a login can help.
type authChallenge struct {
	status    int
	challenge []string // WWW-Authenticate
	err       error    // why the gateway could not get a token on its own
}

// A login stores the tokens for one server, renews them and gets new ones.
type login struct {
	Server
	file   string // "" stores nothing
	http   *http.Client
	log    *slog.Logger
	change func() // called after each change of the token; may be nil

	view atomic.Pointer[loginView]

	// lock guards the fields below. It is held as long as the authorization server takes for a token,
	// so that all requests get the same one.
	lock    chan struct{}
	grant   grant
	asked   *authChallenge // the latest request that was refused in spite of the token
	pending *pending
}

// A loginView has the results of secrets and problem, which need no lock.
type loginView struct {
	secrets []string
	problem string
}

// A pending is a login that waits for a person.
type pending struct {
	state    string
	resource string // see grant
	link     chan string
	code     chan *auth.AuthorizationResult
	cancel   context.CancelFunc
	done     chan struct{} // closed when the login has ended
	err      error         // result; set before done is closed
}

func newLogin(s Server, o *Options) *login {
	base := *cmp.Or(s.HTTP, o.HTTP, &http.Client{})
	base.Timeout = startTimeout
	base.Transport = doer(ownIssuer(cmp.Or(base.Transport, http.DefaultTransport), s.URL))
	l := &login{Server: s, http: &base, log: o.Logger, change: o.Changed,
		lock: make(chan struct{}, 1)}
	l.view.Store(new(loginView))
	if o.Cache != "" {
		l.file = filepath.Join(o.Cache, s.Name+".login")
	}
	return l
}

// load reads the stored grant.
func (l *login) load() error {
	if l.file == "" || l.URL == "" {
		return nil
	}
	g, err := readGrant(l.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if g.URL != l.URL {
		g = grant{}
	}
	l.locked(func() { l.grant = g })
	return nil
}

func readGrant(file string) (g grant, err error) {
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &g)
	}
	if err != nil {
		return g, fmt.Errorf("mcp: read the login: %w", err)
	}
	return g, nil
}

// token returns the access token, or "". The caller holds the lock.
func (l *login) token() string {
	if l.grant.Token == nil {
		return ""
	}
	return l.grant.Token.AccessToken
}

// locked calls fn with the lock held. If the token has changed, it calls l.change afterwards.
func (l *login) locked(fn func()) { l.lockedUntil(nil, fn) }

// lockedUntil is like locked, but does nothing if done is closed before the lock is free.
func (l *login) lockedUntil(done <-chan struct{}, fn func()) {
	select {
	case l.lock <- struct{}{}:
	case <-done:
		return
	}
	if func() bool {
		defer func() { <-l.lock }()
		before := l.token()
		fn()
		l.view.Store(&loginView{slices.Clip(l.grant.secrets()), l.advice()})
		return l.token() != before
	}() && l.change != nil {
		l.change()
	}
}

// save stores the grant. The caller holds the lock.
func (l *login) save() error {
	if l.file == "" || l.OAuth.machine() {
		return nil
	}
	data, err := json.Marshal(l.grant)
	if err == nil {
		err = writeFile(l.file, data)
	}
	if err != nil {
		return fmt.Errorf("mcp: keep the login: %w", err)
	}
	return nil
}

// forget deletes the tokens.
func (l *login) forget() error {
	l.drop()
	l.locked(func() { l.grant, l.asked, l.pending = grant{}, nil, nil })
	if l.file == "" {
		return nil
	}
	if err := os.Remove(l.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("mcp: forget the login: %w", err)
	}
	return nil
}

// secrets returns the tokens and the client's secret. It never waits, because other servers and
// chats wait for its result.
func (l *login) secrets() []string { return l.view.Load().secrets }

func (g *grant) secrets() (list []string) {
	if t := g.Token; t != nil {
		list = append(list, t.AccessToken, t.RefreshToken)
	}
	list = append(list, g.Client.ClientSecret)
	return slices.DeleteFunc(list, func(v string) bool { return len(v) < minSecret })
}

// scopes returns the scopes for which a login asks, if found are those that the server names.
func (g *grant) scopes(found []string) []string {
	return union(union(g.Client.Scopes, g.Wanted), found)
}

// StoredSecrets returns the tokens and client secrets of the logins in dir, a directory such as
// [Options.Cache]. It fails if it can't read or parse one of the files.
func StoredSecrets(dir string) (list []string, err error) {
	files, err := fs.Glob(os.DirFS(dir), "*.login") // dir is not a pattern: it may contain brackets
	for _, file := range files {
		g, err := readGrant(filepath.Join(dir, file))
		if err != nil {
			return nil, err
		}
		list = append(list, g.secrets()...)
	}
	return list, err
}

// problem describes what a person must do so that the server accepts requests, or returns "".
func (l *login) problem() string { return l.view.Load().problem }

// advice makes the result of problem. The caller holds the lock.
func (l *login) advice() string {
	switch {
	case l.asked == nil:
		return ""
	case l.OAuth.machine() && l.asked.err != nil:
		return "it requires a login, and the gateway can't get a token with its own credentials: " +
			oneLine(withoutURL(l.asked.err).Error(), 300)
	case l.OAuth.machine():
		return "it refuses the token that the gateway obtained with its own credentials"
	case l.asked.err != nil:
		return "its token has expired, and the gateway can't get a new one now: " +
			oneLine(withoutURL(l.asked.err).Error(), 300) + ". The gateway tries again with each request"
	case l.asked.status == http.StatusForbidden:
		return fmt.Sprintf("it requires a further permission (%s). An admin sends /mcp login %s, or "+
			"runs gateway mcp login %s", cmp.Or(oneLine(strings.Join(l.grant.Wanted, " "), 200),
			"it does not say which"), l.Name, l.Name)
	}
	return fmt.Sprintf("it requires a login. An admin sends /mcp login %s, or runs "+
		"gateway mcp login %s",
		l.Name, l.Name)
}

// send sends r with the token. If the token is refused, it gets a new one and sends r again.
func (l *login) send(
	r *http.Request, do func(*http.Request) (*http.Response, error),
) (*http.Response, error) {
	if r.Header.Get("Authorization") != "" { // the configuration sets it
		return do(r)
	}
	used := l.authorize(r)
	resp, err := do(r)
	why := refusedBy(resp)
	if err != nil || why == nil {
		return resp, err
	}
	// A body that can't be read twice can't be sent again.
	if !l.renew(r.Context(), used, why) || r.Body != nil && r.GetBody == nil {
		return resp, nil
	}
	again := r.Clone(r.Context())
	if r.Body != nil {
		if again.Body, err = r.GetBody(); err != nil {
			return resp, nil
		}
	}
	if err := resp.Body.Close(); err != nil {
		return nil, err
	}
	l.authorize(again)
	resp, err = do(again)
	if why := refusedBy(resp); err == nil && why != nil {
		l.locked(func() { l.ask(why) })
	}
	return resp, err
}

// refusedBy returns a description of the refusal if a login can help, and otherwise nil.
func refusedBy(resp *http.Response) *authChallenge {
	if resp == nil {
		return nil
	}
	why := &authChallenge{status: resp.StatusCode, challenge: resp.Header.Values("WWW-Authenticate")}
	if why.status == http.StatusUnauthorized ||
		why.status == http.StatusForbidden && why.param("error") == "insufficient_scope" {
		return why
	}
	return nil
}

// param returns a parameter of the WWW-Authenticate header, or "".
func (r *authChallenge) param(name string) string {
	list, err := oauthex.ParseWWWAuthenticate(r.challenge)
	if err != nil {
		return ""
	}
	for _, c := range list {
		if c.Params[name] != "" {
			return c.Params[name]
		}
	}
	return ""
}

// authorize adds the token to r and returns it. It refreshes an expired token first.
func (l *login) authorize(r *http.Request) (token string) {
	l.lockedUntil(r.Context().Done(), func() {
		if t := l.grant.Token; t != nil && !t.Valid() && t.RefreshToken != "" {
			_ = l.refresh(r.Context()) // if it fails, the server decides about the old token
		}
		token = l.token()
	})
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return token
}

// renew gets a new token after a request with the token used was refused, and reports whether there
// is one. If only a person can get one, it records the refusal for the next login.
func (l *login) renew(ctx context.Context, used string, why *authChallenge) (renewed bool) {
	l.lockedUntil(ctx.Done(), func() { renewed = l.replace(ctx, used, why) })
	return renewed
}

// replace implements renew. The caller holds the lock.
func (l *login) replace(ctx context.Context, used string, why *authChallenge) bool {
	switch {
	case l.token() != used && l.token() != "": // another request was faster
		return true
	case l.OAuth.machine():
		var token *oauth2.Token
		if token, why.err = l.machineToken(ctx, why); why.err == nil {
			l.grant.Token, l.asked = token, nil
			return true
		}
	case why.status == http.StatusUnauthorized && l.grant.Token != nil &&
		l.grant.Token.RefreshToken != "":
		err := l.refresh(ctx)
		if err == nil {
			return true
		}
		if !refusedGrant(err) {
			why.err = err
		}
	}
	l.ask(why)
	return false
}

// ask records the refusal for which a login is needed. The caller holds the lock.
func (l *login) ask(why *authChallenge) {
	l.asked = why
	if why.status != http.StatusForbidden || l.OAuth.machine() {
		return
	}
	wanted := union(l.grant.Wanted, strings.Fields(why.param("scope")))
	if !slices.Equal(wanted, l.grant.Wanted) {
		l.grant.Wanted = wanted
		_ = l.save() // otherwise the server will request it again
	}
}

// begin begins a login and returns the link that a person has to open. A goroutine waits for
// finish.
func (l *login) begin(ctx context.Context) (string, error) {
	if l.URL == "" || l.OAuth.machine() {
		return "", fmt.Errorf("nobody can log in to the MCP server %s: it is a program, or the "+
			"gateway has credentials of its own for it", l.Name)
	}
	why := l.probe(ctx)
	life, cancel := context.WithTimeout(context.WithoutCancel(ctx), loginTime)
	p := &pending{link: make(chan string, 1), code: make(chan *auth.AuthorizationResult, 1),
		cancel: cancel, done: make(chan struct{})}
	handler, err := auth.NewAuthorizationCodeHandler(l.handlerConfig(p, l.registration(ctx, why)))
	if err != nil {
		cancel()
		return "", err
	}
	req, err := http.NewRequestWithContext(life, http.MethodPost, l.URL, http.NoBody)
	if err != nil {
		cancel()
		return "", errors.New("its URL is not valid")
	}
	l.drop()
	l.locked(func() { l.pending = p })
	// The library wants the response that refused a request. Only its status and challenge matter.
	resp := &http.Response{StatusCode: why.status, Body: http.NoBody,
		Header: http.Header{"Www-Authenticate": why.challenge}}
	go func() {
		defer cancel()
		defer close(p.done)
		defer func() {
			if e := recover(); e != nil { // the library panics if the registration is null
				l.log.ErrorContext(life, "mcp login panicked", "server", l.Name, "panic", fmt.Sprint(e),
					"stack", string(debug.Stack()))
				p.err = errors.New("its authorization server gives an answer that can't be read")
			}
		}()
		p.err = handler.Authorize(life, req, resp)
	}()
	select {
	case link := <-p.link:
		return link, nil
	case <-p.done:
		why := cmp.Or(withoutURL(p.err), errors.New("it requires no login"))
		return "", fmt.Errorf("the MCP server %s can't be logged in to: %s", l.Name,
			oneLine(why.Error(), 300))
	case <-ctx.Done():
		cancel()
		return "", ctx.Err()
	}
}

// probe returns the latest refusal, or the server's refusal of a request without a token.
func (l *login) probe(ctx context.Context) *authChallenge {
	var why *authChallenge
	l.locked(func() { why = l.asked })
	if why != nil {
		return why
	}
	why = &authChallenge{status: http.StatusUnauthorized}
	ctx, cancel := context.WithTimeout(ctx, headTime)
	defer cancel()
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.URL, strings.NewReader(body))
	if err != nil {
		return why
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range l.Header {
		r.Header.Set(name, value)
	}
	resp, err := l.http.Do(r)
	if err != nil {
		return why
	}
	defer resp.Body.Close()
	return cmp.Or(refusedBy(resp), why)
}

// handlerConfig returns the configuration with which the library logs in for p. If the gateway has
// no client yet, the library registers it with me.
func (l *login) handlerConfig(
	p *pending, me *oauthex.ClientRegistrationMetadata,
) *auth.AuthorizationCodeHandlerConfig {
	o := l.OAuth
	c := &auth.AuthorizationCodeHandlerConfig{
		RedirectURL: me.RedirectURIs[0], Client: l.http, RequestRefreshToken: true,
		AcceptUnadvertisedIss:           true,
		DynamicClientRegistrationConfig: &auth.DynamicClientRegistrationConfig{Metadata: me},
		AuthorizationCodeFetcher: func(ctx context.Context, a *auth.AuthorizationArgs) (
			*auth.AuthorizationResult, error) {
			u, err := url.Parse(a.URL)
			if err != nil || u.Scheme != "https" && u.Scheme != "http" {
				return nil, errors.New("its link is not a web link")
			}
			l.locked(func() {
				p.state, p.resource = u.Query().Get("state"), u.Query().Get("resource")
				l.grant.URL, l.grant.Begun = l.URL, shortHash(p.state)
				_ = l.save() // without it, the person only gets a less exact error after a restart
			})
			p.link <- a.URL
			select {
			case code := <-p.code:
				return code, nil
			case <-ctx.Done():
				return nil, errors.New("nobody logged in in time")
			}
		},
		ScopeFilter: func(found []string) (all []string) {
			l.locked(func() { all = l.grant.scopes(found) })
			return all
		},
		NewTokenSource: func(_ context.Context, c *oauth2.Config, t *oauth2.Token) (
			_ oauth2.TokenSource, err error) {
			l.locked(func() {
				l.grant, l.asked = grant{URL: l.URL, Client: *c, Token: t, Resource: p.resource}, nil
				err = l.save()
			})
			return oauth2.StaticTokenSource(t), err
		},
	}
	switch {
	case o.isDocument():
		c.ClientIDMetadataDocumentConfig = &auth.ClientIDMetadataDocumentConfig{URL: o.ClientID}
	case o.ClientID != "":
		c.PreregisteredClient = &oauthex.ClientCredentials{ClientID: o.ClientID}
		if o.ClientSecret != "" {
			c.PreregisteredClient.ClientSecretAuth = &oauthex.ClientSecretAuth{
				ClientSecret: o.ClientSecret}
		}
	}
	return c
}

// errNoLogin reports an address that does not belong to a login in progress.
var errNoLogin = errors.New("this is not the address of a login that I wait for. For a new one, " +
	"send /mcp login NAME")

// finish completes the pending login with the address at which the browser arrived.
func (l *login) finish(ctx context.Context, address string) error {
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil {
		return errNoLogin
	}
	answer := u.Query()
	var p *pending
	state, begun := "", false
	l.locked(func() {
		if p = l.pending; p != nil {
			state = p.state
		}
		begun = l.grant.Begun != "" && l.grant.Begun == shortHash(answer.Get("state"))
	})
	switch {
	case begun && p == nil:
		return fmt.Errorf("this login is over: it has failed, or the gateway was restarted "+
			"meanwhile. For a new one, send /mcp login %s or run gateway mcp login %s", l.Name, l.Name)
	case state == "" || answer.Get("state") != state:
		return errNoLogin
	}
	if why := answer.Get("error"); why != "" {
		return fmt.Errorf("the login was refused: %s",
			oneLine(why+" "+answer.Get("error_description"), 300))
	}
	select {
	case p.code <- &auth.AuthorizationResult{
		Code: answer.Get("code"), State: state, Iss: answer.Get("iss")}:
	default: // another call was faster
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	l.locked(func() {
		if l.pending == p {
			l.pending = nil
		}
	})
	if p.err != nil {
		return fmt.Errorf("the login has failed: %s", oneLine(withoutURL(p.err).Error(), 300))
	}
	return nil
}

// drop cancels the pending login, if there is one.
func (l *login) drop() {
	var p *pending
	l.locked(func() { p, l.pending = l.pending, nil })
	if p != nil {
		p.cancel()
		<-p.done
	}
}
