package telegram_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/channeltest"
	"gateway/channels/telegram"
	"gateway/channels/telegram/telegramtest"
)

const secret = "Webhook_secret-1"

// freeAddress returns an address on which nobody listens, and which no other test uses.
func freeAddress(t *testing.T) string {
	t.Helper()
	host := "127.0.0.1"
	if runtime.GOOS == "linux" { // each process can use an address of its own
		pid := os.Getpid()
		host = fmt.Sprintf("127.%d.%d.%d", 64+pid>>16&63, pid>>8&255, pid&255)
	}
	ln, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// startHook is like start, but the Channel receives by a webhook. It also returns the webhook's
// address.
func startHook(t *testing.T) (*telegramtest.Server, *telegram.Channel, *logBuffer, string) {
	t.Helper()
	listen := freeAddress(t)
	address := "http://" + listen + "/telegram/hook"
	api, c, log := startWith(t, nil, telegram.Options{
		Webhook: &telegram.Webhook{Listen: listen, URL: address, Secret: secret},
	})
	return api, c, log, address
}

func TestWebhookConformance(t *testing.T) {
	channeltest.Run(t, func(t *testing.T) channeltest.Fixture {
		api, c, log, _ := startHook(t)
		api.AddGroup(-7, "Friends")
		return channeltest.Fixture{
			Channel: c, Platform: &platform{Server: api}, Chat: ada,
			Group: "-7", InGroup: func() bool { return api.InGroup(-7) },
			Secret: "SECRET", Log: log.String, Ours: []goleak.Option{
				goleak.IgnoreAnyFunction("gateway/channels/telegram/telegramtest.(*Server).push"),
			},
		}
	})
}

func TestWebhookOptions(t *testing.T) {
	for _, tt := range []struct {
		name  string
		hook  telegram.Webhook
		words string
	}{
		{"no secret", telegram.Webhook{URL: "https://x.y/z"}, "no secret"},
		{"bad secret", telegram.Webhook{URL: "https://x.y/z", Secret: "a b"}, "letters"},
		{"long secret", telegram.Webhook{URL: "https://x.y/z",
			Secret: strings.Repeat("a", 257)}, "256"},
		{"no URL", telegram.Webhook{Secret: secret}, "https"},
		{"no host", telegram.Webhook{URL: "https:///z", Secret: secret}, "https"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api, c, _ := startWith(t, nil, telegram.Options{Webhook: &tt.hook})
			err := c.Run(t.Context(), new(channeltest.Inbox))
			account, ok := errors.AsType[*channels.AccountError](err)
			if !ok || !strings.Contains(account.Reason, tt.words) {
				t.Errorf("Run = %v, want an AccountError about %s", err, tt.words)
			}
			if api.Webhook() != "" {
				t.Error("the webhook is set all the same")
			}
		})
	}
}

// post sends an update to a webhook and returns the status of the answer.
func post(t *testing.T, method, address, secret string, body io.Reader) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Telegram-Bot-Api-Secret-Token", secret)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestWebhookRefuses(t *testing.T) {
	api, c, log, address := startHook(t)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	in, stop := run(t, c)
	await(t, api, func() bool { return api.Webhook() == address })
	const update = `{"update_id":1,"message":{"message_id":1,"date":1,"text":"hi",` +
		`"from":{"id":42},"chat":{"id":42,"type":"private"}}}`
	for _, tt := range []struct {
		name, method, address, secret, body string
		want                                int
	}{
		{"right", http.MethodPost, address, secret, update, 200},
		{"wrong secret", http.MethodPost, address, "x", update, 401},
		{"no secret", http.MethodPost, address, "", update, 401},
		{"beginning of the secret", http.MethodPost, address, secret[:5], update, 401},
		{"other path", http.MethodPost, address + "/x", secret, update, 404},
		{"GET", http.MethodGet, address, secret, "", 405},
		// Not more than the server reads: while more bytes are on their way, the end of the connection
		// could overtake the answer.
		{"too large", http.MethodPost, address, secret, strings.Repeat(" ", 4<<20+1), 413},
		{"no JSON", http.MethodPost, address, secret, "PRIVATE", 200},
		{"no update", http.MethodPost, address, secret, `{"message":{"text":"PRIVATE"}}`, 200},
	} {
		if got := post(t, tt.method, tt.address, tt.secret, strings.NewReader(tt.body)); got != tt.want {
			t.Errorf("%s: the answer is %d, want %d", tt.name, got, tt.want)
		}
	}
	stop()
	if got := texts(in.Messages()); got != "hi" {
		t.Errorf("received %s, want hi", got)
	}
	if l := log.String(); strings.Contains(l, "PRIVATE") || strings.Contains(l, secret) {
		t.Errorf("the log says too much:\n%s", l)
	}
	if got := in.States(); len(got) != 1 || got[0] != "connected as @gateway_bot by webhook" {
		t.Errorf("reported %q", got)
	}
	if api.Webhook() == "" {
		t.Error("the webhook is removed, so that messages would not wait")
	}
}

// Strangers who hold connections take no more than a part of the files that the process may open.
// Telegram's call waits for one of them.
func TestWebhookCrowd(t *testing.T) {
	api, c, _, address := startHook(t)
	_, stop := run(t, c)
	defer stop()
	await(t, api, func() bool { return api.Webhook() == address })
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", u.Host)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	var crowd []net.Conn
	for range 256 {
		crowd = append(crowd, dial())
	}
	last, status := dial(), make([]byte, len("HTTP/1.1 401"))
	if _, err := io.WriteString(last, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	_ = last.SetReadDeadline(time.Now().Add(time.Second))
	if _, err := last.Read(status); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %q, %v; there is no limit for connections", status, err)
	}
	for _, conn := range crowd {
		_ = conn.Close()
	}
	_ = last.SetReadDeadline(time.Time{})
	if _, err := io.ReadFull(last, status); err != nil || string(status) != "HTTP/1.1 404" {
		t.Errorf("got %q, %v", status, err)
	}
}

func TestWebhookOrder(t *testing.T) {
	api, c, _, _ := startHook(t)
	in, stop := run(t, c)
	var want []string
	for i := range 50 {
		want = append(want, itoa(i))
		api.Say(42, 42, itoa(i))
	}
	receiveOne(t, api)
	stop()
	if got := texts(in.Messages()); got != strings.Join(want, " ") {
		t.Errorf("received %s", got)
	}
}

// TestWebhookEndsInMidCall ends Run while one call is being stored and another one is being
// sent.
func TestWebhookEndsInMidCall(t *testing.T) {
	api, c, _, address := startHook(t)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	entered := make(chan struct{})
	in := &blocking{entered: entered}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, in) }()
	await(t, api, func() bool { return api.Webhook() == address })
	body, writer := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, body)
		if err != nil {
			sent <- err
			return
		}
		r.Header.Set("X-Telegram-Bot-Api-Secret-Token", secret)
		resp, err := http.DefaultClient.Do(r)
		if err == nil {
			resp.Body.Close()
		}
		sent <- err
	}()
	if _, err := writer.Write([]byte("{")); err != nil {
		t.Fatal(err)
	}
	api.Say(42, 42, "hi")
	<-entered
	cancel()
	// Neither call has ended, and the body of one call has not arrived yet.
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want context.Canceled", err)
	}
	writer.Close()
	<-sent
	if n := api.Pending(); n != 1 {
		t.Errorf("%d messages are pending, want the one that was not stored", n)
	}
}

// A blocking intake stores nothing until the context ends.
type blocking struct {
	channeltest.Inbox
	entered chan struct{}
}

func (b *blocking) Publish(ctx context.Context, _ channels.Batch) error {
	close(b.entered)
	<-ctx.Done()
	return ctx.Err()
}

func TestWebhookAddressInUse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	api, c, _ := startWith(t, nil, telegram.Options{Webhook: &telegram.Webhook{
		Listen: ln.Addr().String(), URL: "https://x.y/z", Secret: secret}})
	if err := c.Run(t.Context(), new(channeltest.Inbox)); err == nil || api.Webhook() != "" {
		t.Errorf("Run = %v with the webhook %q", err, api.Webhook())
	}
	// If Telegram refuses the webhook, Run ends, too, with everything that it started.
	listen := freeAddress(t)
	_, c, _ = startWith(t, nil, telegram.Options{Webhook: &telegram.Webhook{
		Listen: listen, URL: "http://example.com/z", Secret: secret}})
	err = c.Run(t.Context(), new(channeltest.Inbox))
	if !errors.Is(err, channels.ErrRefused) || !strings.Contains(err.Error(), "HTTPS") {
		t.Errorf("Run = %v, want %v", err, channels.ErrRefused)
	}
	again, err := net.Listen("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestWebhookPress(t *testing.T) {
	api, c, _, _ := startHook(t)
	if _, err := c.Send(t.Context(), bus.Part{To: ada, Text: "Well?",
		Buttons: []bus.Button{{Label: "Yes", Text: "yes"}}}); err != nil {
		t.Fatal(err)
	}
	in, stop := run(t, c)
	api.Press(42, 42, api.History(42)[0].ID, "Yes")
	await(t, api, func() bool { return api.Pending() == 0 && len(api.Unanswered()) == 0 })
	stop()
	if got := texts(in.Messages()); got != "yes" {
		t.Errorf("received %s, want yes", got)
	}
}

// If Telegram's calls don't reach the gateway, for example because of the proxy, the gateway says
// so until they do.
func TestWebhookOutOfReach(t *testing.T) {
	listen, front := freeAddress(t), freeAddress(t)
	api, c, _ := startWith(t, nil, telegram.Options{Webhook: &telegram.Webhook{
		Listen: listen, URL: "http://" + front + "/telegram/hook", Secret: secret}})
	c.SetInspect(10 * time.Millisecond)
	in := &reporting{reports: make(chan string, 10)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, in) }()
	const connected = "connected as @gateway_bot by webhook"
	if got := <-in.reports; got != connected {
		t.Errorf("first reported %q", got)
	}
	api.Say(42, 42, "hi")
	if got := <-in.reports; !strings.Contains(got, "can't deliver messages to the webhook") {
		t.Errorf("then reported %q", got)
	}
	ln, err := net.Listen("tcp", front)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewUnstartedServer(httputil.NewSingleHostReverseProxy(
		&url.URL{Scheme: "http", Host: listen}))
	_ = proxy.Listener.Close() // it has an address of its own
	proxy.Listener = ln
	proxy.Start()
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	t.Cleanup(proxy.Close)
	if got := <-in.reports; got != connected {
		t.Errorf("at last reported %q", got)
	}
	cancel()
	<-done
	if got := texts(in.Messages()); got != "hi" {
		t.Errorf("received %s, want hi", got)
	}
}

// A reporting intake passes reports on.
type reporting struct {
	channeltest.Inbox
	reports chan string
}

func (r *reporting) Report(_ channels.State, text string) { r.reports <- text }

// If another program removes the webhook, Run ends, so that the next one sets it again.
func TestWebhookRemoved(t *testing.T) {
	api, c, _, address := startHook(t)
	c.SetInspect(10 * time.Millisecond)
	done := make(chan error, 1)
	go func() { done <- c.Run(t.Context(), new(channeltest.Inbox)) }()
	await(t, api, func() bool { return api.Webhook() == address })
	api.SetWebhook("")
	if err := <-done; err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("Run = %v, want an error about another program", err)
	}
}

func TestProxyTransport(t *testing.T) {
	proxied := make(chan string, 1)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := (&http.Request{Header: http.Header{
			"Authorization": r.Header["Proxy-Authorization"]}}).BasicAuth()
		proxied <- user + " " + password + " " + r.URL.Host
		_, _ = w.Write([]byte(`{"ok":true,"result":{"message_id":1}}`)) // the test reads the requests
	})}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	t.Cleanup(func() {
		srv.Close()
		<-done
	})
	transport := telegram.NewTransport()
	transport.Proxy = http.ProxyURL(&url.URL{
		Scheme: "http", User: url.UserPassword("me", "pass"), Host: ln.Addr().String()})
	t.Cleanup(transport.CloseIdleConnections)
	c := telegram.New("tg", token, &telegram.Options{
		BaseURL: "http://telegram.invalid", Transport: transport})
	if _, err := c.Send(t.Context(), bus.Part{To: ada, Text: "hi"}); err != nil {
		t.Error(err)
	}
	if got := <-proxied; got != "me pass telegram.invalid" {
		t.Errorf("the proxy saw %q", got)
	}
}

// TestSOCKS sends a message through a proxy that knows just enough of SOCKS 5 to receive a
// request.
func TestSOCKS(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	asked := make(chan []byte, 1)
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			asked <- nil
			return
		}
		defer conn.Close()
		greeting := make([]byte, 16)
		n, _ := conn.Read(greeting) // a wrong greeting shows in the request below
		if !bytes.HasPrefix(greeting[:n], []byte{5}) {
			asked <- nil
			return
		}
		_, _ = conn.Write([]byte{5, 0})
		request := make([]byte, 64)
		n, _ = conn.Read(request)
		asked <- request[:n]
	}()
	transport := telegram.NewTransport()
	transport.Proxy = http.ProxyURL(&url.URL{Scheme: "socks5", Host: ln.Addr().String()})
	c := telegram.New("tg", token, &telegram.Options{
		BaseURL: "http://telegram.invalid", Transport: transport})
	_, err = c.Send(t.Context(), bus.Part{To: ada, Text: "hi"})
	if err == nil || errors.Is(err, channels.ErrUncertain) {
		t.Errorf("Send = %v, want an error that says: not delivered", err)
	}
	if got := <-asked; !bytes.Contains(got, []byte("telegram.invalid")) {
		t.Errorf("the proxy was asked for %q", got)
	}
}
