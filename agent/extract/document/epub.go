package document

import (
	"encoding/xml"
	"io"
	"net/url"
	"path"
	"slices"
	"strings"
)

// container names the package document of an EPUB.
const container = "META-INF/container.xml"

// epub reads an EPUB: the pages in the order of the book, and then the others by name, such as a
// table of contents.
func (a *archive) epub() error {
	names := a.spine()
	var others []string
	for name := range a.entries {
		switch strings.ToLower(path.Ext(name)) {
		case ".xhtml", ".html", ".htm":
			if !slices.Contains(names, name) {
				others = append(others, name)
			}
		}
	}
	slices.Sort(others)
	locked := false
	for _, name := range append(names, others...) {
		r, err := a.open(name)
		if err != nil {
			return err
		}
		// Of each page at most maxToken bytes count.
		raw, err := io.ReadAll(io.LimitReader(r, maxToken))
		// Everything needed was read.
		_ = r.Close()
		if err != nil {
			return unpackError(err)
		}
		text, ok := decode(WholeRunes(raw))
		if !ok { // a bought book
			locked = true
			continue
		}
		a.out.paragraph()
		if err := a.page(text); err != nil {
			return err
		}
	}
	if locked && !a.out.begun {
		return errLocked
	}
	return nil
}

// spine returns the names of the pages in the order of the book, or nil if the order can't be read.
func (a *archive) spine() (names []string) {
	opf := ""
	// After an error the pages are read by name.
	_ = a.xml(container, func(e *xml.StartElement, _, _ string) {
		if e != nil && e.Name.Local == "rootfile" && opf == "" {
			opf = path.Clean(attribute(e, "full-path"))
		}
	})
	pages := make(map[string]string) // names by id
	// After an error the order has the pages before it.
	_ = a.xml(opf, func(e *xml.StartElement, _, _ string) {
		switch {
		case e == nil || len(pages) > maxEntries:
		case e.Name.Local == "item":
			if u, err := url.Parse(attribute(e, "href")); err == nil {
				pages[attribute(e, "id")] = path.Join(path.Dir(opf), u.Path)
			}
		case e.Name.Local == "itemref":
			id := attribute(e, "idref")
			if name := pages[id]; a.has(name) {
				names = append(names, name)
			}
			delete(pages, id)
		}
	})
	return names
}
