package files

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"
)

// A search first counts the matches in each file. Then it reads again only the files whose lines
// are shown.
type search struct {
	args  grepArgs
	query *query
	start place
	parts []part // in the order of the results

	mu       sync.Mutex
	next     int     // index of the next part to search
	counts   [][]int // by part and file: number of matches, counted up to a limit
	complete int     // number of parts at the beginning whose counts are complete
	results  int     // number of results in the complete parts
	binary   int     // binary files that were skipped
	large    int
	failed   int
}

// need is the number of results to find: the skipped ones, the shown ones, and one more.
func (s *search) need() int { return s.args.Skip + s.args.Limit + 1 }

// run counts the matches, with several workers.
func (s *search) run(ctx context.Context) error {
	s.counts = make([][]int, len(s.parts))
	onProcessors(func() { s.work(ctx) })
	return ctx.Err()
}

// work counts one part after the other until there are enough results.
func (s *search) work(ctx context.Context) {
	sc := searcher{scanner: scanner{query: s.query}}
	for ctx.Err() == nil {
		s.mu.Lock()
		// Only complete parts at the beginning count. So the results are the same however fast the
		// workers are.
		i := s.next
		if i == len(s.parts) || s.results >= s.need() {
			s.mu.Unlock()
			break
		}
		s.next++
		s.mu.Unlock()
		counts := s.count(ctx, &sc, s.parts[i])
		s.mu.Lock()
		// counts is not nil even if nothing matches; nil means that the part was not searched.
		s.counts[i] = counts
		for ; s.complete < len(s.parts) && s.counts[s.complete] != nil; s.complete++ {
			for _, n := range s.counts[s.complete] {
				s.results += s.resultCount(n)
			}
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.binary, s.large, s.failed = s.binary+sc.binary, s.large+sc.large, s.failed+sc.failed
}

// resultCount returns the number of results for a file with n matches.
func (s *search) resultCount(n int) int {
	if s.args.Mode == modeContent {
		return n
	}
	return min(n, 1)
}

// count returns the number of matches in each file of a part. It stops in a file when the result
// needs no higher number, or when ctx ends.
func (s *search) count(ctx context.Context, sc *searcher, p part) []int {
	most := s.need()
	switch s.args.Mode {
	case modeFiles:
		most = 1
	case modeCount:
		most = maxEntries
	}
	counts := make([]int, len(p.names))
	dir, err := s.openDir(p.dir)
	if err != nil {
		sc.failed += len(p.names)
		return counts
	}
	defer dir.close()
	for i, name := range p.names {
		text := sc.read(dir, name)
		sc.hits(ctx, text, func(hit) bool {
			counts[i]++
			return counts[i] < most
		})
	}
	return counts
}

// A folder is a directory whose files are searched.
type folder struct {
	root *os.Root
	file string // the file that "" stands for, if the search starts at a file
	own  bool   // close must close root
}

// openDir opens a directory below the start of the search. If the start is a file, that is the
// whole tree, which close leaves open.
func (s *search) openDir(dir string) (folder, error) {
	if len(s.parts) == 1 && s.parts[0].names[0] == "" {
		return folder{root: s.start.tree.dir, file: s.start.path}, nil
	}
	root, err := s.start.tree.dir.OpenRoot(filepath.Join(s.start.path, filepath.FromSlash(dir)))
	return folder{root: root, own: true}, err
}

func (d folder) close() {
	if d.own {
		_ = d.root.Close() // it was only read
	}
}

// A searcher is the state of one worker. Its buffers grow to the size of the largest file.
type searcher struct {
	scanner
	buffer []byte
	binary int
	large  int
	failed int
}

// read returns the text of a file with lines that end in "\n". The text is valid until the next
// call. It is empty if the file can't be searched.
func (sc *searcher) read(d folder, name string) []byte {
	f, err := d.root.OpenFile(cmp.Or(name, d.file), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		sc.failed++
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		sc.failed++
		return nil
	}
	if info.Size() > maxSearch {
		sc.large++
		return nil
	}
	if size := int(info.Size()); cap(sc.buffer) < size {
		sc.buffer = make([]byte, size+size/2) // with room for larger files
	}
	text := sc.buffer[:info.Size()]
	// The file may have become shorter since Stat. What it has grown is left out.
	n, err := io.ReadFull(f, text)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		sc.failed++
		return nil
	}
	text = text[:n]
	if bytes.IndexByte(text[:min(n, sniffLen)], 0) >= 0 {
		sc.binary++
		return nil
	}
	return withoutCR(bytes.TrimPrefix(text, byteOrderMark)) // which read_file leaves out, too
}

// withoutCR replaces each "\r\n" in text by "\n", in place.
func withoutCR(text []byte) []byte {
	i := bytes.Index(text, []byte("\r\n"))
	if i < 0 {
		return text
	}
	to := i
	for ; i < len(text); i++ {
		if text[i] == '\r' && i+1 < len(text) && text[i+1] == '\n' {
			continue
		}
		text[to] = text[i]
		to++
	}
	return text[:to]
}

// text returns the results to show.
func (s *search) text(ctx context.Context, notes []string) (string, error) {
	for _, left := range []struct {
		n    int
		what string
	}{
		{s.binary, "binary files"}, {s.large, "files over 5 MB"},
		{s.failed, "files that can't be read"},
	} {
		if left.n > 0 {
			notes = append(notes, fmt.Sprintf("not searched: %d %s", left.n, left.what))
		}
	}
	if s.results == 0 {
		return withNotes("(nothing matches the pattern)", notes), nil
	}
	if s.args.Skip >= s.results {
		return "", fmt.Errorf("there are only %d results, so none at offset %d", s.results, s.args.Skip)
	}
	v := view{search: s, searcher: searcher{scanner: scanner{query: s.query}}}
	end := v.show(ctx, s.args.Skip, min(s.results, s.args.Skip+s.args.Limit))
	switch {
	case end < s.results:
		notes = append([]string{fmt.Sprintf("results %d to %d; there are more, with offset %d",
			s.args.Skip+1, end, end)}, notes...)
	case s.args.Skip > 0:
		notes = append([]string{fmt.Sprintf("results %d to %d, the last", s.args.Skip+1, end)}, notes...)
	}
	return withNotes(strings.TrimSuffix(v.out.String(), "\n"), notes), ctx.Err()
}

// A view formats results. It reads each file again, with a buffer of its own.
type view struct {
	*search
	searcher
	out strings.Builder
}

// show writes the results with indexes from from up to to. It returns the index of the first one
// for which there is no room, or to.
func (v *view) show(ctx context.Context, from, to int) int {
	seen := 0
	for i, p := range v.parts[:v.complete] {
		for j, n := range v.counts[i] {
			// seen is the number of results before this file. first and last are relative to the
			// file.
			worth := v.resultCount(n)
			first, last := max(from-seen, 0), min(to-seen, worth)
			seen += worth
			if ctx.Err() != nil || seen-worth >= to {
				return to
			}
			if first >= last {
				continue
			}
			if v.out.Len() > maxChars {
				return seen - worth + first
			}
			if end := v.file(ctx, p, j, n, first, last); end < last {
				return seen - worth + end
			}
		}
	}
	return to
}

// file writes the results of the j-th file of a part. It returns the index of the first one for
// which there is no room, or last.
func (v *view) file(ctx context.Context, p part, j, n, first, last int) int {
	name := v.start.name
	if p.names[j] != "" {
		name = v.start.under(path.Join(p.dir, p.names[j])).name
	}
	name = printable(name)
	switch v.args.Mode {
	case modeFiles:
		v.out.WriteString(name + "\n")
	case modeCount:
		fmt.Fprintf(&v.out, "%s:%d\n", name, n)
	default:
		dir, err := v.openDir(p.dir)
		if err != nil {
			return last // it was removed in the meantime
		}
		defer dir.close()
		// The file may have changed since it was counted, so there may be fewer hits.
		text := v.read(dir, p.names[j])
		var hits []hit
		v.hits(ctx, text, func(h hit) bool {
			hits = append(hits, h)
			return len(hits) < last
		})
		hits = hits[min(first, len(hits)):]
		if n := v.lines(name, text, hits); n < len(hits) {
			return first + n
		}
	}
	return last
}

// lines writes hits of a text and the lines around them. It returns for how many there was room.
func (v *view) lines(name string, text []byte, hits []hit) int {
	w := lineWriter{name: name, text: text, out: &v.out, gaps: v.args.Before+v.args.After > 0}
	if w.gaps && v.out.Len() > 0 && len(hits) > 0 {
		v.out.WriteString("--\n")
	}
	for i, h := range hits {
		if v.out.Len() > maxChars {
			return i
		}
		// The lines after a hit end before the next hit, which is written as a hit.
		next := len(text) + 1
		if i+1 < len(hits) {
			next = hits[i+1].from
		}
		from := h.from
		// The lines before a hit begin behind what is written already.
		for range v.args.Before {
			if from > w.done {
				from = bytes.LastIndexByte(text[:from-1], '\n') + 1
			}
		}
		w.write(max(from, w.done), h.from, '-')
		w.write(h.from, h.to+1, ':')
		to := h.to
		for range v.args.After {
			if to < len(text) {
				to = lineAround(text, to+1, min(to+1, len(text))).to
			}
		}
		w.write(h.to+1, min(to+1, next), '-')
	}
	return len(hits)
}

// A lineWriter writes lines of a text with their numbers.
type lineWriter struct {
	name string
	text []byte
	out  *strings.Builder
	gaps bool // mark omitted lines
	done int  // offset up to which the text is written or omitted
	line int  // number of line breaks before done
}

// maxGrepLine is how much of a line is shown, in bytes.
const maxGrepLine = 500

// write writes the lines between two offsets. sign follows the file name and the line number.
func (w *lineWriter) write(from, to int, sign byte) {
	to = min(to, len(w.text))
	if from >= to {
		return
	}
	if w.gaps && from > w.done && w.done > 0 {
		w.out.WriteString("--\n")
	}
	w.line += bytes.Count(w.text[w.done:from], []byte{'\n'})
	for from < to {
		end := lineAround(w.text, from, from).to
		w.line++
		fmt.Fprintf(w.out, "%s%c%d%c%s\n", w.name, sign, w.line, sign, cutLine(w.text[from:end]))
		from = end + 1
	}
	w.done = from
}

// cutLine returns a line, cut to maxGrepLine.
func cutLine(line []byte) string {
	if len(line) <= maxGrepLine {
		return strings.ToValidUTF8(string(line), "\ufffd")
	}
	n := maxGrepLine
	for n > maxGrepLine-utf8.UTFMax && !utf8.RuneStart(line[n]) {
		n--
	}
	return fmt.Sprintf("%s [line cut, %d bytes more]",
		strings.ToValidUTF8(string(line[:n]), "\ufffd"), len(line)-n)
}
