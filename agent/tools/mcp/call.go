package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gabriel-vasile/mimetype"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"gateway/agent/tool"
	"gateway/store/plainjson"
	"gateway/store/plaintext"
)

// Limits of one result.
const (
	maxImages    = 8
	maxFiles     = 8
	maxFile      = 10 << 20 // bytes
	maxImage     = 10 << 20 // bytes
	maxErrorText = 1_500    // characters
)

// errTimeout ends a call that exceeds the server's timeout.
var errTimeout = errors.New("no answer in time")

// errForgotten ends a call because the endpoint forgot the session in the meantime.
var errForgotten = fmt.Errorf("%w any more", sdk.ErrSessionMissing)

// source is the origin of the results, for the mark of foreign text.
func (s Server) source() string { return "the MCP server " + s.Name }

// A caller makes requests to one server over its present link.
type caller struct {
	base
	requests *liveRequests
}

// use calls do with a connection and converts an error for the model. It tries a second time if the
// request did not reach the server, or if the endpoint forgot the session during the request and
// the request may be repeated.
func (s *caller) use(
	ctx context.Context, effect tool.Effect,
	do func(ctx context.Context, session *sdk.ClientSession) error,
) error {
	for try := 0; ; try++ {
		wait, cancel := context.WithTimeoutCause(ctx, s.Timeout, errTimeout)
		l, release, err := s.status.acquire(wait)
		cancel()
		if err != nil {
			return err
		}
		err = s.callOnce(ctx, l, do)
		release()
		if err == nil {
			return nil
		}
		lost, sent := classify(ctx, s.URL == "", err)
		if lost && s.URL == "" {
			select { // the reason of the end is more precise than err
			case <-l.ended:
			case <-time.After(3 * endTime):
			}
		}
		// Calls that begin from here on wait for a new link.
		if lost {
			l.fail(withoutURL(err))
		}
		// A request that has not arrived may be made again, whatever its effect.
		forgotten := !l.alive() && errors.Is(l.err, sdk.ErrSessionMissing)
		again := !sent || effect != tool.Once && forgotten
		if again && try == 0 && ctx.Err() == nil {
			continue
		}
		return s.explain(ctx, l, err, effect, sent)
	}
}

// callOnce calls do with l and the server's timeout, which stands still while a person is asked.
func (s *caller) callOnce(
	ctx context.Context, l *link, do func(ctx context.Context, session *sdk.ClientSession) error,
) error {
	// Two limits apply: maxLife for the whole request, and the server's timeout, which starts only
	// when the request may run.
	ctx, cancel := context.WithTimeoutCause(ctx, maxLife, errTimeout)
	defer cancel()
	ctx, slow := context.WithCancelCause(ctx)
	defer slow(nil)
	end, err := s.requests.begin(ctx, func() *time.Timer {
		return time.AfterFunc(s.Timeout, func() { slow(errTimeout) })
	})
	if err != nil {
		return err
	}
	defer end()
	bound, done := l.bind(ctx)
	defer done()
	// The transport records here whether the request was sent, and the status of the response.
	var first post
	err = do(context.WithValue(bound, postKey{}, &first), l.session)
	switch {
	case err != nil && context.Cause(ctx) == errTimeout:
		return errTimeout
	case err != nil && ctx.Err() == nil && first.lostSession(err):
		// The request ended the link. The library's error may describe that end instead of the
		// cause.
		return fmt.Errorf("%w: %w", sdk.ErrSessionMissing, err)
	case s.URL != "" && first.begun.Load() && errors.Is(err, sdk.ErrSessionMissing):
		// The endpoint refused the session of another request, which ended all calls.
		return errForgotten
	}
	return answerIn(err)
}

// answerIn returns the answer of the server that is hidden in err, or err itself. The library
// recognises its own errors for a closed connection by their codes. Servers use these codes, too,
// for errors of their own. Then the server got the request, and the connection is in order.
func answerIn(err error) error {
	if !errors.Is(err, sdk.ErrConnectionClosed) {
		return err
	}
	_, why, found := strings.Cut(err.Error(), `": `) // the method precedes the message
	if !found || strings.HasPrefix(why, "client is closing") ||
		strings.HasPrefix(why, "server is closing") {
		return err
	}
	return &jsonrpc.Error{Message: why}
}

// classify reports whether the link can't be used any more because of err, and whether the request
// may have reached the server, which is a process or an endpoint. The order matters: errForgotten
// wraps ErrSessionMissing, and a url.Error wraps the error of a dial.
func classify(ctx context.Context, process bool, err error) (lost, sent bool) {
	var dial *net.OpError
	var request *url.Error
	var answer *jsonrpc.Error
	var file *fs.PathError
	switch {
	case errors.Is(err, errTimeout), ctx.Err() != nil:
		// The link is in order; the server may be at work on the request.
		return false, true
	case errors.Is(err, errForgotten):
		return true, true
	case errors.Is(err, sdk.ErrSessionMissing), errors.Is(err, sdk.ErrConnectionClosed):
		return true, false
	case errors.As(err, &dial) && dial.Op == "dial":
		return true, false
	case errors.As(err, &request):
		return true, true
	case errors.As(err, &answer):
		// The server has answered with an error, so the link works.
		return false, true
	}
	// An error of the pipes to a process ends the link, and one of the data does not.
	return process && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, errLong) || errors.As(err, &file)), true
}

// explain converts err for the model. Each text says whether the call may have had an effect. The
// words of the server go through the redactor, because a server may repeat a secret.
func (s *caller) explain(
	ctx context.Context, l *link, err error, effect tool.Effect, sent bool,
) error {
	var answer *jsonrpc.Error
	why := s.login.problem()
	switch {
	case errors.As(err, &answer) && answer.Code != codeRejected:
		return fmt.Errorf("the MCP server %s refuses the call: %s", s.Name,
			s.redactor.written(answer.Message))
	case why != "" && refusesLogin(err):
		return fmt.Errorf("the MCP server %s refuses the call: %s; nothing was done", s.Name, why)
	case !sent:
		return fmt.Errorf("the MCP server %s can't be reached: %s; nothing was done", s.Name,
			s.redactor.written(withoutURL(err).Error()))
	case errors.Is(err, errTimeout):
		return fmt.Errorf("the MCP server %s has not answered within %s; the call was cancelled%s",
			s.Name, s.Timeout, outcome(effect))
	case ctx.Err() != nil:
		return fmt.Errorf("the call to the MCP server %s was cancelled: %w%s", s.Name,
			context.Cause(ctx), outcome(effect))
	case !l.alive():
		return fmt.Errorf("the connection to the MCP server %s ended during the call: %s%s; "+
			"the gateway is reconnecting", s.Name, s.redactor.written(l.err.Error()), outcome(effect))
	}
	return fmt.Errorf("the call to the MCP server %s failed: %s%s", s.Name,
		s.redactor.written(withoutURL(err).Error()), outcome(effect))
}

// codeRejected is the code that the library gives to requests that its transport could not deliver,
// for example because of status 503.
const codeRejected = -32005

// outcome describes the possible effect of a call without an answer.
func outcome(effect tool.Effect) string {
	switch effect {
	case tool.Pure:
		return "; the tool only reads, so it can be tried again"
	case tool.Idempotent:
		return "; it is not known whether it took effect, but it can be tried again"
	}
	return "; it is not known whether it took effect: find out before you try again"
}

// convert converts the answer of a tool for the model.
func (b *builder) convert(s Server, r *sdk.CallToolResult) (tool.Result, error) {
	for _, c := range r.Content {
		b.content(c)
	}
	if data, err := plainjson.Marshal(r.StructuredContent); err == nil && b.lacks(r, data) {
		b.add(string(data))
	}
	if r.IsError {
		text := cmp.Or(plaintext.Shorten(strings.TrimSpace(b.text()), maxErrorText),
			"it does not say which")
		return tool.Result{Foreign: s.source()},
			fmt.Errorf("the MCP server %s reports an error: %s", s.Name, text)
	}
	return b.result(s), nil
}

// lacks reports whether the parts of r lack most of its structured content, whose JSON is data. The
// protocol wants the parts to repeat it, as JSON or for people, but many servers only write a
// summary, such as "4 items". Those that answer with a picture repeat the picture in base64.
func (b *builder) lacks(r *sdk.CallToolResult, data []byte) bool {
	const longest, most = 64 << 10, 1_000 // bytes of a summary, and values that are compared
	text := b.text()
	isOther := func(c sdk.Content) bool { _, is := c.(*sdk.TextContent); return !is }
	switch {
	case r.StructuredContent == nil:
		return false
	case len(r.Content) == 0:
		return true
	case slices.ContainsFunc(r.Content, isOther), len(text) > longest:
		return false
	}
	var content any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if dec.Decode(&content) != nil {
		return false // can't occur: it was encoded from a value
	}
	all, missing, n := 0, 0, 0
	eachWord(content, func(word string) bool {
		if all += len(word); !strings.Contains(text, plain(word)) {
			missing += len(word)
		}
		n++
		return n < most
	})
	return 2*missing > all
}

// eachWord calls yield for each text and number in v, without the names of fields, until it returns
// false.
func eachWord(v any, yield func(string) bool) bool {
	switch v := v.(type) {
	case string:
		return yield(strings.TrimSpace(v))
	case json.Number:
		return yield(v.String())
	case []any:
		for _, element := range v {
			if !eachWord(element, yield) {
				return false
			}
		}
	case map[string]any:
		for _, element := range v {
			if !eachWord(element, yield) {
				return false
			}
		}
	}
	return true
}

// A builder collects the parts of a result. name is the beginning of the names of its files; reader
// is the name of the tool that reads resources, or "".
type builder struct {
	name, reader string
	parts        []string
	images       []tool.Image
	files        []tool.File
}

func (b *builder) add(part string) { b.parts = append(b.parts, plain(part)) }

func (b *builder) text() string { return strings.Join(b.parts, "\n") }

func (b *builder) result(s Server) tool.Result {
	return tool.Result{Text: b.text(), Foreign: s.source(), Images: b.images, Files: b.files}
}

// note adds a remark of the gateway about the answer.
func (b *builder) note(format string, args ...any) {
	b.add("(" + fmt.Sprintf(format, args...) + ")")
}

// content adds one part of an answer. The model learns of each part that it does not see.
func (b *builder) content(c sdk.Content) {
	switch c := c.(type) {
	case *sdk.TextContent:
		b.add(c.Text)
	case *sdk.ImageContent:
		b.image(c.Data, c.MIMEType)
	case *sdk.AudioContent:
		b.file("sound", c.Data, c.MIMEType)
	case *sdk.EmbeddedResource:
		b.resource(c.Resource)
	case *sdk.ResourceLink:
		hint := ""
		if b.reader != "" {
			hint = "; " + b.reader + " may read it"
		}
		b.note("resource %s, %s%s%s", oneLine(c.URI, 500), oneLine(c.Name, 100),
			annotation(c.Description, c.MIMEType), hint)
	default:
		b.note("a part of an unknown kind: not shown")
	}
}

// annotation returns ": description (type)". It leaves out empty parts.
func annotation(description, kind string) string {
	text := ""
	if description != "" {
		text = ": " + oneLine(description, 300)
	}
	if kind != "" {
		text += " (" + oneLine(kind, 60) + ")"
	}
	return text
}

// image adds a picture if models support its type. The content decides about the type, not what the
// server says.
func (b *builder) image(data []byte, kind string) {
	switch found := http.DetectContentType(data); {
	case !tool.IsPicture(found):
		b.note("picture, %s, %d bytes: its type can't be shown", oneLine(kind, 60), len(data))
	case len(data) > maxImage:
		b.note("picture of %d bytes: too large to be shown", len(data))
	case len(b.images) == maxImages:
		b.note("one more picture: not shown")
	default:
		n := len(b.images) + 1
		name := fmt.Sprintf("%s-%d.%s", b.name, n, strings.TrimPrefix(found, "image/"))
		b.images = append(b.images, tool.Image{Name: name, Data: data})
		b.note("picture %d, %s, %d bytes", n, found, len(data))
	}
}

// file adds content that is neither text nor a picture. The server's type is shown, but the
// extension of the name comes from the content.
func (b *builder) file(what string, data []byte, kind string) {
	if len(data) == 0 || len(data) > maxFile || len(b.files) == maxFiles {
		b.note("%s, %s, %d bytes: not kept", what, oneLine(kind, 60), len(data))
		return
	}
	name := fmt.Sprintf("%s-%d%s", b.name, len(b.files)+1, mimetype.Detect(data).Extension())
	b.files = append(b.files, tool.File{Name: name, Data: data})
	b.note("%s, %s, %d bytes, kept as %s", what, oneLine(kind, 60), len(data), name)
}

// resource adds the content of a resource.
func (b *builder) resource(r *sdk.ResourceContents) {
	switch {
	case r == nil:
		b.note("a resource without content")
	case len(r.Blob) > 0 && strings.HasPrefix(http.DetectContentType(r.Blob), "image/"):
		b.note("resource %s:", oneLine(r.URI, 500))
		b.image(r.Blob, r.MIMEType)
	case len(r.Blob) > 0:
		b.note("resource %s:", oneLine(r.URI, 500))
		b.file("data", r.Blob, r.MIMEType)
	default:
		b.note("resource %s:", oneLine(r.URI, 500))
		b.add(r.Text)
	}
}
