package e2e

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/telegram/telegramtest"
	"gateway/store"
)

// hostileMemory is the memory of the gateway and all its child processes, in bytes.
const hostileMemory = 512 << 20

// A hostileFile is an attached file, and a part of the text that the model gets about it.
type hostileFile struct {
	name, mime string
	data       []byte
	want       string
}

// hostileFiles returns hostile files. Most of them would need far more time or memory than the
// gateway has.
func hostileFiles(t *testing.T) []hostileFile {
	const tooLarge = "it can't be shown: it is too large"
	gif := []byte("GIF89a\xff\xff\xff\xff\x00\x00\x00,\x00\x00\x00\x00\xff\xff\xff\xff\x00\x02\x00;")
	webp := []byte("RIFF\x20\x00\x00\x00WEBPVP8L\x10\x00\x00\x00\x2f\xff\xff\xff\x0f" +
		strings.Repeat("\x00", 12))
	const xlsx = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
	book := `<workbook><sheets><sheet name="One" r:id="rId1"/></sheets></workbook>`
	sheet := "<worksheet><sheetData><row><c t='s'><v>0</v></c></row></sheetData></worksheet>"
	return []hostileFile{
		{"bomb.png", "image/png", imageBomb(), tooLarge},
		{"bomb.gif", "image/gif", gif, tooLarge},
		{"bomb.webp", "image/webp", webp, tooLarge},
		{"passes.jpg", "image/jpeg", passesJPEG(t, 7000), "more than 100 passes"},
		{"slow.jpg", "image/jpeg", passesJPEG(t, 50), "image/jpeg, media/"},
		{"large.png", "image/png", largePNG(t, 4200), "image/png, media/"},
		{"loop.pdf", "application/pdf", loopPDF(), "could not be read"},
		{"cells.xlsx", xlsx, packed(t, "xl/worksheets/sheet1.xml",
			"<worksheet><sheetData><row><c><v>", "<b/>"+strings.Repeat("a", 1000),
			"</v></c></row></sheetData></worksheet>", 10<<20, "xl/workbook.xml", book), "aaaa"},
		{"shared.xlsx", xlsx, packed(t, "xl/sharedStrings.xml", "<sst>",
			"<si><t>"+strings.Repeat("a", 900)+"</t></si>", "</sst>", 20<<20,
			"xl/workbook.xml", book, "xl/worksheets/sheet1.xml", sheet), "aaaa"},
		{"bomb.docx", "application/zip", zipBomb(), "the file is too large to be read"},
		{"deep.html", "text/html", bytes.Repeat([]byte("<div>"), 400_000), "media/"},
		{"tables.html", "text/html", bytes.Repeat([]byte("<table><tr><td>x"), 100_000), "media/"},
	}
}

// passesJPEG returns a progressive JPEG of 4095 × 4095 pixels with n passes. Each pass has 42
// bytes and takes a decoder about 15 ms.
func passesJPEG(t testing.TB, n int) []byte {
	var b bytes.Buffer
	if err := jpeg.Encode(&b, image.NewGray(image.Rect(0, 0, 8, 8)), nil); err != nil {
		t.Fatal(err)
	}
	file := b.Bytes()
	i := bytes.Index(file, []byte{0xff, 0xc0})
	file[i+1] = 0xc2
	binary.BigEndian.PutUint32(file[i+5:], 4095<<16|4095)
	file = file[:bytes.Index(file, []byte{0xff, 0xda})]
	// A Huffman code of one bit that means "nothing in the next 16,384 blocks". 14 more bits can
	// make the run longer.
	file = append(file, 0xff, 0xc4, 0, 20, 0x10, 1)
	file = append(append(file, make([]byte, 15)...), 0xe0)
	const blocks, codes = 512 * 512, 512 * 512 / 16384 * 15 / 8
	file = append(file, 0xff, 0xda, 0, 8, 1, 1, 0, 0, 0, 1) // the average of each block: 0
	file = append(file, make([]byte, blocks/4)...)
	for range n - 1 {
		file = append(file, 0xff, 0xda, 0, 8, 1, 1, 0, 1, 63, 0x10) // one more bit of everything else
		file = append(file, make([]byte, codes+2)...)
	}
	return append(file, 0xff, 0xd9)
}

// largePNG returns a valid picture that needs more memory than usual.
func largePNG(t *testing.T, side int) []byte {
	var b bytes.Buffer
	e := png.Encoder{CompressionLevel: png.BestSpeed}
	if err := e.Encode(&b, image.NewRGBA(image.Rect(0, 0, side, side))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// loopPDF returns a document whose page tree contains itself.
func loopPDF() []byte {
	var b bytes.Buffer
	b.WriteString("%PDF-1.7\n")
	var offsets []int
	for i, object := range []string{"<</Type/Catalog/Pages 2 0 R>>",
		"<</Type/Pages/Count 100000/Kids[" + strings.Repeat("2 0 R ", 1000) + "]>>"} {
		offsets = append(offsets, b.Len())
		fmt.Fprintf(&b, "%d 0 obj%s\nendobj\n", i+1, object)
	}
	at := b.Len()
	b.WriteString("xref\n0 3\n0000000000 65535 f \n")
	for _, offset := range offsets {
		fmt.Fprintf(&b, "%010d 00000 n \n", offset)
	}
	fmt.Fprintf(&b, "trailer<</Size 3/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n", at)
	return b.Bytes()
}

// packed returns an archive with an entry of about size bytes, and others given as names and
// texts.
func packed(t *testing.T, name, begin, middle, end string, size int, others ...string) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(w, flate.BestSpeed)
	})
	write := func(name string, texts ...string) {
		w, err := z.Create(name)
		for _, text := range texts {
			if err == nil {
				_, err = io.WriteString(w, text)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; i < len(others); i += 2 {
		write(others[i], others[i+1])
	}
	const times = 1000
	texts := []string{begin}
	for block := strings.Repeat(middle, times); size > 0; size -= len(block) {
		texts = append(texts, block)
	}
	write(name, append(texts, end)...)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// confine limits the memory of a gateway and its children: in total if control groups are
// available, and of each process in any case.
func confine(t *testing.T, p *process) {
	t.Helper()
	pid := p.cmd.Process.Pid
	limit := unix.Rlimit{Cur: hostileMemory, Max: hostileMemory}
	if err := unix.Prlimit(pid, unix.RLIMIT_DATA, &limit, nil); err != nil {
		t.Fatal(err)
	}
	for _, g := range []struct{ root, bound string }{
		{"/sys/fs/cgroup", "memory.max"}, {"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
	} {
		dir := filepath.Join(g.root, fmt.Sprintf("gateway-test-%d", pid))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() {
			p.kill()           // a control group can be removed when it is empty
			_ = os.Remove(dir) // fails if a child is still ending
		})
		err := setNumber(filepath.Join(dir, g.bound), hostileMemory)
		if err == nil {
			err = setNumber(filepath.Join(dir, "cgroup.procs"), pid)
		}
		if err == nil {
			t.Logf("all processes have %d MiB together", hostileMemory>>20)
			return
		}
	}
}

// setNumber writes a number to an existing file. A folder that is not a control group has no such
// file.
func setNumber(path string, n int) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strconv.Itoa(n))
	return errors.Join(err, f.Close())
}

// explodingTable returns a table of 8 KB with two million cells.
func explodingTable() string {
	return strings.Repeat("|", 1271) + "\n" + strings.Repeat("-|", 1270) + "\n" +
		strings.Repeat("|\n", 1900)
}

// TestHostileContent checks that a gateway with little memory answers everybody while several
// people send hostile files. The gateway stops when it is asked to, and processes none of the
// files again after a restart.
func TestHostileContent(t *testing.T) {
	t.Parallel()
	files := hostileFiles(t)
	pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/")) // otherwise the first file
		w.Header().Set("Content-Type", files[n%len(files)].mime)
		_, _ = w.Write(files[n%len(files)].data) // the client may be gone
	}))
	t.Cleanup(pages.Close)
	w := newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		if strings.Contains(lastText(r), "draw a table") {
			return say(explodingTable())
		}
		return followOrders(r)
	}})
	w.configure(quiet + fmt.Sprintf("\n[web]\nsearch = \"off\"\nallow_networks = [%q]\nports = [%q]\n",
		"127.0.0.1/32", pages.URL[strings.LastIndexByte(pages.URL, ':')+1:]))
	p := w.start()
	confine(t, p)
	p.ready()

	wants := make(map[int64]string) // wanted text, by chat
	user := func(want string) int64 {
		id := int64(1000 + len(wants))
		wants[id] = want
		w.telegram.AddUser(telegramtest.User{ID: id, First: "Mallory"})
		return id
	}
	for _, f := range files {
		id := user(f.want)
		w.telegram.SayDocument(id, id, "", f.name, f.mime, f.data)
	}
	for range 2 {
		id := user("||||")
		w.telegram.Say(id, id, "draw a table")
	}
	fetcher := user("the tools said")
	var orders strings.Builder // all at once, in one turn
	for _, n := range []int{0, 1, 2, 3, 7, 9, 10, 11} {
		fmt.Fprintf(&orders, "DO web_fetch {\"url\": \"%s/%d\"}\n", pages.URL, n)
	}
	w.telegram.Say(fetcher, fetcher, orders.String())
	answers := func() (n int) { // returns how many chats have an answer
		for id := range wants {
			n += min(1, len(w.texts(id)))
		}
		return n
	}
	var longest time.Duration
	for n := 0; n < len(wants); n = answers() {
		start := time.Now()
		text := fmt.Sprintf("%d were answered", n)
		w.telegram.Say(annID, annID, text)
		w.await("an answer to "+text, func() bool { return heard(w, annID, text) })
		longest = max(longest, time.Since(start))
		w.await("one more answer", func() bool { return answers() > n })
	}
	t.Logf("Ann was answered after %v at most", longest)
	for id, want := range wants {
		if list := w.texts(id); !strings.Contains(strings.Join(list, "\n"), want) {
			t.Errorf("chat %d got %.300q, want %q", id, list, want)
		}
	}

	w.eventually("the end of all answers", func(db *store.DB) bool {
		return w.count(db, "outbox WHERE state != 'sent'") == 0
	})
	late := user("image/jpeg, media/")
	w.telegram.SayDocument(late, late, "", "slow.jpg", "image/jpeg", files[4].data)
	w.received()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.exited(patience); code != 0 {
		t.Errorf("the gateway ended with %d", code)
	}
	counts := make(map[int64]int)
	for id := range wants {
		counts[id] = len(w.texts(id))
	}
	p = w.start()
	confine(t, p)
	p.ready()
	w.await("the last answer", func() bool { return len(w.texts(late)) == 1 })
	w.telegram.Say(annID, annID, "and now?")
	w.await("an answer", func() bool { return heard(w, annID, "and now?") })
	for id, n := range counts {
		if got := len(w.texts(id)); id != late && got != n {
			t.Errorf("after the restart chat %d has %d messages, want %d", id, got, n)
		}
	}
}
