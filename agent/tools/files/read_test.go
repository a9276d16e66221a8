package files

import (
	"archive/zip"
	"bytes"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestReadImage(t *testing.T) {
	f := newFixture(t)
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 3, 2))); err != nil {
		t.Fatal(err)
	}
	f.write(t, "photo.txt", b.String()) // the type is known by the content, not by the name
	r, err := f.result(t, "s", "read_file", "path", "photo.txt")
	if err != nil || len(r.Images) != 1 || !bytes.Equal(r.Images[0].Data, b.Bytes()) ||
		r.Images[0].Name != "photo.txt" || !strings.HasPrefix(r.Text, "(an image, image/png, ") {
		t.Errorf("read_file = %q with %d images, %v", r.Text, len(r.Images), err)
	}
	f.write(t, "large.png", b.String())
	if err := os.Truncate(filepath.Join(f.dir, "large.png"), maxImage+1); err != nil {
		t.Fatal(err)
	}
	_, err = f.call(t, "read_file", "path", "large.png")
	wantError(t, err, "the limit is 20971520", "make it smaller")
}

func TestReadDocument(t *testing.T) {
	f := newFixture(t)
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range map[string]string{
		"[Content_Types].xml": `<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/` +
			`package/2006/content-types"/>`,
		"word/document.xml": `<?xml version="1.0"?><w:document xmlns:w="http://schemas.openxmlformats.` +
			`org/wordprocessingml/2006/main"><w:body><w:p><w:r><w:t>First line</w:t></w:r></w:p>` +
			`<w:p><w:r><w:t>Second line</w:t></w:r></w:p></w:body></w:document>`,
	} {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	f.write(t, "letter.docx", b.String())
	r, err := f.result(t, "s", "read_file", "path", "letter.docx")
	if err != nil || !strings.Contains(r.Text, "\tFirst line\n") ||
		!strings.Contains(r.Text, "\tSecond line\n") || r.Foreign != "the file letter.docx" {
		t.Errorf("read_file = %q of %q, %v", r.Text, r.Foreign, err)
	}
	f.write(t, "latin1.txt", "caf\xe9 au lait\n")
	got, err := f.call(t, "read_file", "path", "latin1.txt")
	if err != nil || !strings.Contains(got, "café au lait") || !strings.Contains(got, "not UTF-8") {
		t.Errorf("read_file = %q, %v", got, err)
	}
}

// A file of any size is read line by line.
func TestReadBounded(t *testing.T) {
	f := newFixture(t)
	f.write(t, "large", strings.Repeat(strings.Repeat("x", 99)+"\n", 1_000_000)) // 100 MB
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := f.call(t, "read_file", "path", "large", "offset", 999_999)
	runtime.ReadMemStats(&after)
	if err != nil || !strings.HasSuffix(got, "(end of the file at line 1000000)") {
		t.Errorf("read_file ends in %q, %v", got[max(0, len(got)-80):], err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
		t.Errorf("%d bytes were allocated, want 4 MB at most", n)
	}
}

func BenchmarkRead(b *testing.B) {
	f := newFixture(b)
	out, err := os.Create(filepath.Join(f.dir, "large"))
	if err != nil {
		b.Fatal(err)
	}
	chunk := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 100_000)
	for range 107 { // 1.07 GB
		if _, err := out.Write(chunk); err != nil {
			b.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(107 * len(chunk)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.call(b, "read_file", "path", "large", "offset", 10_699_000); err != nil {
			b.Fatal(err)
		}
	}
}
