package export

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// An archive contains the files that fit. A file that does not fit returns an error.
func TestZipBound(t *testing.T) {
	noise := make([]byte, 1<<20) // noise can't be compressed
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	var out bytes.Buffer
	z := NewZip(&out, 3<<20, time.Now())
	n := 0
	for ; z.Room() > int64(len(noise)); n++ {
		w, err := z.Create("file")
		if err == nil {
			_, err = w.Write(noise)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil || n != 2 || out.Len() > 3<<20 {
		t.Errorf("%d files have %d bytes, %v; want 2 files", n, out.Len(), err)
	}
	if _, err := zip.NewReader(bytes.NewReader(out.Bytes()), int64(out.Len())); err != nil {
		t.Error(err)
	}
	z = NewZip(&out, 1<<19, time.Now())
	w, err := z.Create("file")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = w.Write(noise); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too much gives %v", err)
	}
}

// The README has room in the archive, however many files were left out.
func TestManyFilesLeftOut(t *testing.T) {
	var out bytes.Buffer
	z := NewZip(&out, 1<<20, time.Now())
	r := &run{Exporter: &Exporter{Zone: time.UTC, Now: time.Now}, to: z}
	w, err := z.Create("file")
	for z.Room() > 1<<10 && err == nil { // leave no room but that for the README
		_, err = fmt.Fprintln(w, rand.Uint64(), rand.Uint64())
	}
	for range 20_000 {
		r.leaveOut(fmt.Sprintf("files/telegram-42/%016x.ogg", rand.Uint64()), "there is no room for it")
	}
	if err == nil {
		err = r.readme(t.Context())
	}
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	if n := len(r.leftOut); n != maxLeftOut+1 || r.leftOut[n-1] != "and 19500 more" {
		t.Errorf("the README names %d files, the last is %q", n, r.leftOut[n-1])
	}
}

// A secret is removed from lines in each of its encodings, even if it is written in pieces.
func TestLineCleaner(t *testing.T) {
	secret := `a"b<c>d\e`
	var out strings.Builder
	c := &lineCleaner{to: &out, clean: cleaner([]string{secret})}
	text := "plain " + secret + "\n" + `{"json":"a\"b<c>d\\e","html":"a\"b\u003cc\u003ed\\e"}` +
		"\nthe end " + secret
	for i := range len(text) {
		if _, err := c.Write([]byte{text[i]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.flush(); err != nil {
		t.Fatal(err)
	}
	want := "plain [withheld]\n" + `{"json":"[withheld]","html":"[withheld]"}` +
		"\nthe end [withheld]"
	if out.String() != want {
		t.Errorf("cleaned it is %q, want %q", out.String(), want)
	}
}

// If one secret is the beginning of another one, the longer one is removed completely.
func TestCleanerOfNestedSecrets(t *testing.T) {
	for _, secrets := range [][]string{{"sk-1", `sk-1"2`}, {`sk-1"2`, "sk-1"}} {
		clean := cleaner(secrets)
		got := clean.Replace(`plain sk-1"2, json sk-1\"2, short sk-1`)
		if want := "plain [withheld], json [withheld], short [withheld]"; got != want {
			t.Errorf("without %q it is %q, want %q", secrets, got, want)
		}
	}
}
