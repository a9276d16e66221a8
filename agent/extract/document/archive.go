package document

import (
	"archive/zip"
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Limits of archives. All of these formats are ZIP files with XML files in them.
const (
	maxDirectory = 8 << 20 // bytes to read for the list of entries
	maxEntries   = 10_000
	maxDepth     = 1000    // of XML elements
	maxToken     = 1 << 20 // bytes of a tag, or of text without a tag
)

// An archive is a document in the form of an archive.
type archive struct {
	*file
	entries map[string]*zip.File
}

// archive reads an archive. Its entries determine the format.
func (f *file) archive() error {
	z, err := zip.NewReader(&limitedReader{bytes.NewReader(f.raw), maxDirectory}, int64(len(f.raw)))
	if errors.Is(err, errTooLarge) {
		return errTooLarge
	}
	if err != nil {
		return errBroken
	}
	if len(z.File) > maxEntries {
		return errTooLarge
	}
	// Now without the limit, for the entries.
	if z, err = zip.NewReader(bytes.NewReader(f.raw), int64(len(f.raw))); err != nil {
		return errBroken
	}
	a := &archive{file: f, entries: make(map[string]*zip.File)}
	// The names are cleaned, because those in relations are, too.
	for _, e := range z.File {
		a.entries[strings.TrimPrefix(path.Clean("/"+e.Name), "/")] = e
	}
	switch {
	case a.has("encrypted-package"), a.hasLocked():
		return errLocked
	case a.has("word/document.xml"):
		return a.word()
	case a.has("xl/workbook.xml"):
		return a.workbook()
	case a.has(presentation):
		return a.slides()
	case a.has("content.xml"):
		return a.xml("content.xml", (&openText{sink: a.out}).handle)
	case a.has(container):
		return a.epub()
	}
	return ErrUnsupported
}

// isLocked reports whether raw is an encrypted document of Microsoft Office. Such a file is not an
// archive. It has the older format of Office, which names its parts in UTF-16.
func isLocked(raw []byte) bool {
	name := strings.Join(strings.Split("EncryptedPackage", ""), "\x00")
	return bytes.HasPrefix(raw, []byte("\xd0\xcf\x11\xe0")) && bytes.Contains(raw, []byte(name))
}

// hasLocked reports whether an entry of an OpenDocument file is encrypted.
func (a *archive) hasLocked() (found bool) {
	const manifest = "META-INF/manifest.xml"
	if a.has(manifest) {
		// If it can't be read, the content shows the damage.
		_ = a.xml(manifest, func(e *xml.StartElement, _, _ string) {
			found = found || e != nil && e.Name.Local == "encryption-data"
		})
	}
	return found
}

// A limitedReader is a reader that allows only a limited number of bytes to be read.
type limitedReader struct {
	r    io.ReaderAt
	left int64
}

func (s *limitedReader) ReadAt(p []byte, off int64) (int, error) {
	if s.left -= int64(len(p)); s.left < 0 {
		return 0, errTooLarge
	}
	return s.r.ReadAt(p, off)
}

func (a *archive) has(name string) bool { return a.entries[name] != nil }

// numbered returns the names of the entries with prefix, a number and suffix, sorted by number.
func (a *archive) numbered(prefix, suffix string) []string {
	numbers := make(map[string]int)
	var names []string
	for name := range a.entries {
		rest, ok := strings.CutPrefix(name, prefix)
		number, ends := strings.CutSuffix(rest, suffix)
		if n, err := strconv.Atoi(number); ok && ends && err == nil {
			numbers[name] = n
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return numbers[a] - numbers[b] })
	return names
}

// open opens an entry. Reading fails when a limit is reached. The caller must close it.
func (a *archive) open(name string) (io.ReadCloser, error) {
	e := a.entries[name]
	if e == nil {
		return nil, errBroken
	}
	// Bit 0 marks an encrypted entry.
	if e.Flags&1 != 0 {
		return nil, errLocked
	}
	r, err := e.Open()
	if err != nil {
		return nil, errBroken
	}
	return &unpacked{r, a}, nil
}

// An unpacked counts the bytes that are read from an entry.
type unpacked struct {
	io.ReadCloser
	a *archive
}

func (u *unpacked) Read(p []byte) (int, error) {
	if err := u.a.check(); err != nil {
		return 0, err
	}
	n, err := u.ReadCloser.Read(p)
	if u.a.unpacked -= int64(n); u.a.unpacked < 0 {
		return n, errTooLarge
	}
	return n, err
}

// A handler is called for the start and end of each element, and for text. Exactly one of start,
// end and text is set.
type handler func(start *xml.StartElement, end, text string)

// xml reads an entry. Names have no name space, because all documents use the same ones.
func (a *archive) xml(name string, handle handler) error {
	r, err := a.open(name)
	if err != nil {
		return err
	}
	// Reading has checked the data, so an error of Close does not matter.
	defer func() { _ = r.Close() }()
	return readXML(r, handle)
}

// readXML calls handle for the tokens of r. It reads raw tokens: these have no name spaces and need
// not match, so a slightly damaged document is readable. The text counts as UTF-8, whatever the
// document declares.
func readXML(r io.Reader, handle handler) error {
	d := xml.NewDecoder(&guard{r: r})
	d.Strict = false
	d.CharsetReader = func(_ string, input io.Reader) (io.Reader, error) { return input, nil }
	for depth := 0; ; {
		token, err := d.RawToken()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return unpackError(err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			if depth++; depth > maxDepth {
				return errTooLarge
			}
			handle(&t, "", "")
		case xml.EndElement:
			depth--
			handle(nil, t.Name.Local, "")
		case xml.CharData:
			handle(nil, "", string(t))
		}
	}
}

// A guard protects an XML decoder from input that would fill the memory: the decoder holds a whole
// token in memory, whatever its length. The guard refuses long tokens, and document types, which
// office documents do not have.
type guard struct {
	r      io.Reader
	tail   [9]byte // last bytes that were read
	length int     // since the last < or >, or since the beginning of <!
	marked bool    // within <! … >
}

func (g *guard) Read(p []byte) (int, error) {
	n, err := g.r.Read(p)
	for _, c := range p[:n] {
		copy(g.tail[:], g.tail[1:])
		g.tail[8] = c
		g.length++
		switch {
		case g.marked:
			// A comment or CDATA section ends only if -- or ]] precedes the >.
			end := string(g.tail[6:])
			g.marked = end != "-->" && end != "]]>"
		case c == '!' && g.tail[7] == '<':
			g.marked = true
		case c == '<' || c == '>':
			g.length = 0
		case g.length > maxToken:
			return 0, errTooLarge
		}
		if g.marked && (g.length > maxToken || strings.EqualFold(string(g.tail[:]), "<!DOCTYPE")) {
			return 0, errTooLarge
		}
	}
	return n, err
}

// attribute returns the value of an element's attribute, or "".
func attribute(e *xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// unpackError returns err if it is an error of this package, and otherwise the error for a damaged
// file.
func unpackError(err error) error {
	for _, own := range []error{errTooLarge, errTooLong, errEnough} {
		if errors.Is(err, own) {
			return own
		}
	}
	return errBroken
}
