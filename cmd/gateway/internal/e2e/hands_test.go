package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gateway/agent/llm/openai/openaitest"
)

// workWorld returns a world whose model follows orders, with additional configuration and files
// in the workspace. Ann is the owner.
func workWorld(t *testing.T, tables string, files map[string][]byte) *world {
	w := newWorld(t, worldOptions{answer: followOrders, channel: quiet + "\nowners = [7]\n" + tables})
	w.model.Keep(100)
	for name, data := range files {
		writeFile(t, filepath.Join(w.home, "workspace", name), data)
	}
	return w
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// do makes Ann order a tool call, waits for the answer, and returns the newest request to the
// model. It contains the result.
func (w *world) do(call string) openaitest.Request {
	w.t.Helper()
	n := w.model.Count()
	w.telegram.Say(annID, annID, "DO "+call)
	w.await("an answer to "+call, func() bool { return w.model.Count() >= n+2 })
	list := w.model.Requests()
	return list[len(list)-1]
}

// result returns the newest result of a tool in r.
func result(r openaitest.Request) (text string) {
	for _, m := range r.Messages {
		if m.Role == "tool" {
			text = m.Content
		}
	}
	return text
}

// images returns how many images are in r.
func images(r openaitest.Request) (n int) {
	for _, m := range r.Messages {
		n += len(m.Images)
	}
	return n
}

// TestReadImage checks that the next request shows the model an image that the agent has read
// from a file or from the web. Other data is not shown as an image.
func TestReadImage(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(pixels(30)) // the client notices an error
	}))
	defer server.Close()
	w := workWorld(t, local(server), map[string][]byte{
		"rose.png": pixels(20), "fake.png": []byte("no image, but a text")})
	w.run()
	r := w.do(`read_file {"path":"rose.png"}`)
	if images(r) != 1 || !strings.Contains(result(r), "[image rose.png is in media/") {
		t.Errorf("the request has %d images, want 1; the result is %q", images(r), result(r))
	}
	r = w.do(`read_file {"path":"fake.png"}`)
	if images(r) != 1 || !strings.Contains(result(r), "no image, but a text") {
		t.Errorf("the request has %d images, want 1 still; the result is %q", images(r), result(r))
	}
	r = w.do(`web_fetch {"url":"` + server.URL + `/spade.png"}`)
	if images(r) != 2 {
		t.Errorf("the request has %d images, want 2; the result is %q", images(r), result(r))
	}
}

// local allows the tools to fetch pages from a test server.
func local(s *httptest.Server) string {
	return fmt.Sprintf("[web]\nallow_networks = [\"127.0.0.1/32\"]\nports = [%q]\n",
		s.URL[strings.LastIndexByte(s.URL, ':')+1:])
}

var storedWhole = regexp.MustCompile(`the whole is in (media/[^ ]+\.txt)`)

// TestLongResult checks that a long result is shown as its head and tail, with the path of a file
// that contains the whole result.
func TestLongResult(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := 0; b.Len() < 100_000; i++ {
		fmt.Fprintf(&b, "line %d of the long file\n", i)
	}
	lines := strings.Count(b.String(), "\n")
	w := workWorld(t, "", map[string][]byte{"long.txt": []byte(b.String())})
	w.run()
	last := fmt.Sprintf("line %d of", lines-1)
	r := w.do(`read_file {"path":"long.txt","limit":2000}`)
	text := result(r)
	if len(text) > 17_000 || !strings.Contains(text, "line 0 of") {
		t.Errorf("the result has %d bytes, want 16,000 at most from the first line on", len(text))
	}
	file := storedWhole.FindStringSubmatch(text)
	if file == nil {
		t.Fatalf("the result does not say where the whole is: %q", text[7000:10_000])
	}
	r = w.do(fmt.Sprintf(`grep {"path":%q,"pattern":"line 1000 of"}`, file[1]))
	if got := result(r); !strings.Contains(got, "line 1000 of") {
		t.Errorf("the whole can't be searched: %q", got)
	}
	r = w.do(`read_file {"path":"long.txt","offset":` + fmt.Sprint(lines-5) + `}`)
	if got := result(r); !strings.Contains(got, last) || storedWhole.MatchString(got) {
		t.Errorf("the last lines are %q, want %q and nothing stored", got, last)
	}
	// A stored result belongs to its conversation.
	w.telegram.Say(bobID, bobID, fmt.Sprintf(`DO read_file {"path":%q}`, file[1]))
	w.await("a refusal", func() bool { return heard(w, bobID, "Error: ") })
}

// onePage returns a PDF with a text.
func onePage(text string) []byte {
	stream := "BT /F1 24 Tf 72 700 Td (" + text + ") Tj ET"
	objects := []string{
		"<< /Type /Catalog /Pages 2 0 R >>",
		"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
		"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R " +
			"/Resources << /Font << /F1 5 0 R >> >> >>",
		fmt.Sprintf("<< /Length %d >>\nstream\n%s\nendstream", len(stream), stream),
		"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
	}
	b := "%PDF-1.4\n"
	table := fmt.Sprintf("xref\n0 %d\n0000000000 65535 f \n", len(objects)+1)
	for i, o := range objects {
		table += fmt.Sprintf("%010d 00000 n \n", len(b))
		b += fmt.Sprintf("%d 0 obj\n%s\nendobj\n", i+1, o)
	}
	return fmt.Appendf(nil, "%s%strailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n",
		b, table, len(objects)+1, len(b))
}

// TestReadPDF checks that PDFs are read as text from any source, in the frame of that source.
func TestReadPDF(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(onePage("water the tulips")) // the client notices an error
	}))
	defer server.Close()
	w := workWorld(t, local(server), map[string][]byte{"plan.pdf": onePage("dig here")})
	w.run()
	for _, test := range []struct{ call, source, want string }{
		{`read_file {"path":"plan.pdf"}`, "the file plan.pdf", "dig here"},
		{`web_fetch {"url":"` + server.URL + `/"}`, "the page " + server.URL, "water the tulips"},
	} {
		got := result(w.do(test.call))
		if !strings.HasPrefix(got, "[text of "+test.source) || !strings.Contains(got, test.want) {
			t.Errorf("the result is %q, want %q in the frame of %s", got, test.want, test.source)
		}
	}
}

// TestRoots checks that folders besides the workspace are reached by their names. Writing works
// only if it is allowed, and nothing outside of them is reachable.
func TestRoots(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"notes/old.txt", "drafts/old.txt", "secret.txt"} {
		writeFile(t, filepath.Join(dir, name), []byte("this is "+name))
	}
	if err := os.Symlink("../secret.txt", filepath.Join(dir, "drafts", "link")); err != nil {
		t.Fatal(err)
	}
	w := workWorld(t, fmt.Sprintf("[roots.notes]\npath = %q\n[roots.drafts]\npath = %q\n"+
		"write = true\n", filepath.Join(dir, "notes"), filepath.Join(dir, "drafts")), nil)
	w.run()
	for _, test := range []struct{ call, want string }{
		{`read_file {"path":"notes/old.txt"}`, "this is notes/old.txt"},
		{`read_file {"path":"drafts/old.txt"}`, "this is drafts/old.txt"},
		{`write_file {"path":"drafts/new.txt","content":"tulips"}`, "drafts/new.txt was made"},
		{`write_file {"path":"notes/new.txt","content":"tulips"}`, "Error: "},
		{`edit_file {"path":"notes/old.txt","old_text":"this","new_text":"that"}`, "Error: "},
		{`read_file {"path":"notes/../../secret.txt"}`, "Error: "},
		{`read_file {"path":"drafts/link"}`, "Error: "},
		{`write_file {"path":"drafts/link","content":"pwned"}`, "Error: "},
		{`write_file {"path":"drafts/../../secret.txt","content":"pwned"}`, "Error: "},
	} {
		if got := result(w.do(test.call)); !strings.Contains(got, test.want) {
			t.Errorf("%s: the result is %q, want %q", test.call, got, test.want)
		}
	}
	for name, want := range map[string]string{"drafts/new.txt": "tulips", "notes/new.txt": "",
		"notes/old.txt": "this is notes/old.txt", "secret.txt": "this is secret.txt"} {
		if got, _ := os.ReadFile(filepath.Join(dir, name)); string(got) != want {
			t.Errorf("%s holds %q, want %q", name, got, want)
		}
	}
}
