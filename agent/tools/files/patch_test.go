package files

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const patchedText = "one\ntwo\nthree\nfour\nfive\nsix\n"

func TestApplyPatch(t *testing.T) {
	const begin, end = "*** Begin Patch\n", "\n*** End Patch\n"
	tests := []struct {
		name, patch string
		want        map[string]string // "" means that the file does not exist
	}{
		{"update", begin + "*** Update File: a\n@@\n one\n-two\n+2\n three" + end,
			map[string]string{"a": "one\n2\nthree\nfour\nfive\nsix\n"}},
		{"two hunks", begin + "*** Update File: a\n@@\n-one\n+1\n@@\n five\n-six\n+6" + end,
			map[string]string{"a": "1\ntwo\nthree\nfour\nfive\n6\n"}},
		{"anchors", begin + "*** Update File: code\n@@ func b() {\n-\treturn 1\n+\treturn 2" + end,
			map[string]string{"code": "func a() {\n\treturn 1\n}\nfunc b() {\n\treturn 2\n}\n"}},
		{"anchor in the hunk", begin + "*** Update File: code\n@@ func b() {\n func b() {\n-\treturn 1" +
			end, map[string]string{"code": "func a() {\n\treturn 1\n}\nfunc b() {\n}\n"}},
		{"end of file", begin + "*** Update File: twice\n@@\n-x\n+y\n*** End of File" + end,
			map[string]string{"twice": "x\nz\ny\n"}},
		{"added at the end", begin + "*** Update File: a\n@@\n+seven" + end,
			map[string]string{"a": patchedText + "seven\n"}},
		{"add", begin + "*** Add File: new/b\n+first\n+\n+third" + end,
			map[string]string{"new/b": "first\n\nthird\n", "a": patchedText}},
		{"delete", begin + "*** Delete File: a" + end, map[string]string{"a": ""}},
		{"move", begin + "*** Update File: a\n*** Move to: dir/c\n@@\n-one\n+1" + end,
			map[string]string{"a": "", "dir/c": "1\ntwo\nthree\nfour\nfive\nsix\n"}},
		{"all at once", begin + "*** Update File: a\n@@\n-one\n+1\n*** Add File: b\n+b\n" +
			"*** Delete File: twice\n*** Update File: a\n@@\n-two\n+2" + end,
			map[string]string{"a": "1\n2\nthree\nfour\nfive\nsix\n", "b": "b\n", "twice": ""}},
		{"CRLF", begin + "*** Update File: crlf\n@@\n x\n-y\n+1\n+2" + end,
			map[string]string{"crlf": "x\r\n1\r\n2\r\n"}},
		{"no end of line", begin + "*** Update File: bare\n@@\n x\n-y\n+z" + end,
			map[string]string{"bare": "x\nz"}},
		{"white space", begin + "*** Update File: spaces\n@@\n x\n-y\n+z" + end,
			map[string]string{"spaces": "x  \nz\n"}},
		{"accents", begin + "*** Update File: accents\n@@\n café\n-y\n+z" + end,
			map[string]string{"accents": "cafe\u0301\nz\n"}},
		{"line numbers", begin + "*** Update File: a\n@@ -1,3 +1,3 @@\n one\n-two\n+2" + end,
			map[string]string{"a": "one\n2\nthree\nfour\nfive\nsix\n"}},
		{"no newline", begin + "*** Update File: bare\n@@\n x\n-y\n\\ No newline at end of file\n+z" +
			end, map[string]string{"bare": "x\nz"}},
		{"dashes", begin + "*** Update File: dashes\n@@\n--- x\n+++ y\n z" + end,
			map[string]string{"dashes": "++ y\nz\n"}},
		{"fenced", "```\n" + begin + "*** Update File: a\n@@\n-one\n+1" + end + "```",
			map[string]string{"a": "1\ntwo\nthree\nfour\nfive\nsix\n"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newPatchFixture(t)
			if _, err := f.call(t, "apply_patch", "patch", tt.patch); err != nil {
				t.Fatal(err)
			}
			for name, want := range tt.want {
				if want != "" {
					f.wantFile(t, name, want)
				} else if _, err := os.Lstat(filepath.Join(f.dir, name)); err == nil {
					t.Errorf("%s is still there", name)
				}
			}
			wantNoTraces(t, f.dir)
		})
	}
}

func newPatchFixture(t *testing.T) *fixture {
	f := newFixture(t)
	for name, text := range map[string]string{
		"a": patchedText, "twice": "x\nz\nx\n", "crlf": "x\r\ny\r\n", "bare": "x\ny",
		"spaces": "x  \ny\n", "dashes": "-- x\nz\n", "accents": "cafe\u0301\ny\n",
		"code": "func a() {\n\treturn 1\n}\nfunc b() {\n\treturn 1\n}\n",
	} {
		f.write(t, name, text)
	}
	return f
}

func TestPatchRefused(t *testing.T) {
	f := newPatchFixture(t)
	writeFile(t, filepath.Join(f.docs, "d"), "x\n")
	const first = "*** Begin Patch\n*** Update File: a\n@@\n-one\n+1\n*** Add File: n/new\n+x\n"
	tests := []struct {
		name, patch string
		parts       []string
	}{
		{"not there", "*** Update File: twise\n@@\n-x\n+y", []string{`there is no "twise"`, `"twice"`}},
		{"misfit", "*** Update File: twice\n@@\n x\n-Z\n+y",
			[]string{"twice: hunk 1 of 1 does not apply", "begins in line 1", "upper and lower case"}},
		{"misfit of CRLF", "*** Update File: crlf\n@@\n x\n-Z\n+z",
			[]string{"begins in line 1\nline 2 of the file: \"y\"\n"}},
		{"second hunk", "*** Update File: code\n@@\n-func a() {\n+func c() {\n@@\n-nothing like it\n+y",
			[]string{"code: hunk 2 of 2 does not apply"}},
		{"order", "*** Update File: code\n@@\n-func b() {\n+b\n@@\n-func a() {\n+a",
			[]string{"hunk 2 of 2 belongs before the previous hunk"}},
		{"twice", "*** Update File: twice\n@@\n-x\n+y",
			[]string{"matches more than once, in lines 1, 3"}},
		{"anchor", "*** Update File: code\n@@ func z()\n-\treturn 1",
			[]string{`there is no line "func z()"`}},
		{"there already", "*** Add File: twice\n+x", []string{"is there already"}},
		{"move onto", "*** Update File: twice\n*** Move to: bare\n", []string{"which is there already"}},
		{"outside", "*** Add File: ../x\n+x", []string{"outside the workspace"}},
		{"absolute", "*** Add File: /etc/x\n+x", []string{"outside the workspace"}},
		{"read only", "*** Delete File: docs/d", []string{"may only be read"}},
		{"media", "*** Add File: media/d\n+x", []string{"can't be changed"}},
		{"moved out", "*** Update File: twice\n*** Move to: docs/e\n", []string{"may only be read"}},
		{"junk", "*** Update File: twice\n@@\n-x\nno sign\n", []string{"line 11", `not "no sign"`}},
		{"no path", "*** Update File:\n@@\n-x", []string{"the path is missing"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := f.call(t, "apply_patch", "patch", first+tt.patch+"\n*** End Patch")
			wantError(t, err, tt.parts...)
			f.wantFile(t, "a", patchedText)
			f.wantFile(t, "twice", "x\nz\nx\n")
			if _, err := os.Lstat(filepath.Join(f.dir, "n")); err == nil {
				t.Error("a file was made")
			}
			wantNoTraces(t, f.dir)
		})
	}
	for patch, part := range map[string]string{
		"":      "there are no changes in the patch",
		"hello": "there are no changes in the patch",
		"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+1\n":     "a unified diff is not understood",
		"*** Update File: a\n@@\n-one\n+one\n":          "are the same",
		"*** Update File: a\n":                          "there are no changes for",
		"*** Update File: a\n@@\n-one\n*** Else: b\n+x": "want a line that begins with a space",
	} {
		_, err := f.call(t, "apply_patch", "patch", patch)
		wantError(t, err, part)
		f.wantFile(t, "a", patchedText)
	}
}

// If a patch removes a file and adds it again without lines, the file is empty.
func TestPatchMadeAgain(t *testing.T) {
	f := newPatchFixture(t)
	got, err := f.call(t, "apply_patch", "patch", "*** Begin Patch\n*** Delete File: a\n"+
		"*** Add File: a\n*** Add File: b\n+b\n*** End Patch")
	if err != nil || !strings.Contains(got, "a was made") {
		t.Errorf("apply_patch = %q, %v", got, err)
	}
	f.wantFile(t, "a", "")
	f.wantFile(t, "b", "b\n")
}

// If an old file can't be put back, its only copy stays, and the error names it.
func TestPatchNotPutBack(t *testing.T) {
	const backup = ".gateway-old.tmp"
	f := newFixture(t)
	f.write(t, "d/a", "new")
	f.write(t, "d/"+backup, "old")
	info, err := os.Lstat(filepath.Join(f.dir, "d/a"))
	if err != nil {
		t.Fatal(err)
	}
	// Another process puts a folder in the place of the new file.
	if err := os.Remove(filepath.Join(f.dir, "d/a")); err != nil {
		t.Fatal(err)
	}
	f.write(t, "d/a/b", "of another")
	at := place{tree: f.files.trees.workspace, path: "d/a", name: "d/a", given: "d/a"}
	s := &staged{change: change{target: target{at, info}}, dir: openRoot(t, filepath.Join(f.dir, "d")),
		backup: backup, done: true}
	wantError(t, s.rollback(), `"d/a" could not be put back`, `its old content is in "d/`+backup+`"`)
	s.clean()
	f.wantFile(t, "d/"+backup, "old")
}

// A patch is refused if finding its hunks would take too long. It may have many hunks, or one
// hunk that almost matches everywhere in the file.
func TestPatchOfManyHunks(t *testing.T) {
	const lines = 5_000
	text := strings.Repeat("x\n", lines) + strings.Repeat("y\n", lines)
	for name, hunks := range map[string]string{
		"hunk 67 of 1000": strings.Repeat("@@ x\n-x\n", 1000),
		"hunk 1 of 1":     "@@\n" + strings.Repeat(" x\n", lines/2) + "-y\n",
	} {
		patches, err := parsePatch("*** Update File: long\n" + hunks)
		if err != nil {
			t.Fatal(err)
		}
		work := (splitLine + 100) * 2 * lines // maxCompared is for a file a hundred times as long
		_, err = applyHunks(text, patches[0].hunks, &work)
		wantError(t, err, name+" takes too long")
	}
}

// A patch is also refused if it has a few long lines that almost match everywhere in the file.
// The bound counts the bytes that are compared.
func TestPatchOfLongLines(t *testing.T) {
	const lines = 1_000
	long := strings.Repeat("x", 1_000)
	text := strings.Repeat(long+"\n", lines)
	for name, hunks := range map[string]string{
		"hunk 1 of 1":    "@@\n" + strings.Repeat(" "+long+"\n", lines/2) + "-y\n",
		"hunk 61 of 400": strings.Repeat("@@ "+long+"\n-"+long+"\n", 400),
	} {
		patches, err := parsePatch("*** Update File: long\n" + hunks)
		if err != nil {
			t.Fatal(err)
		}
		work := splitLine*lines + 1_000_000 // enough to compare 64 MB; the lines alone need less
		_, err = applyHunks(text, patches[0].hunks, &work)
		wantError(t, err, name+" takes too long", "lines that are long", "Use several patches")
	}
}

// A patch is also refused if it has many sections for one file, because each section splits the
// file into lines.
func TestPatchOfManySections(t *testing.T) {
	const lines = 1_000
	text := strings.Repeat("x\n", lines)
	patches, err := parsePatch("*** Update File: long\n@@\n+y\n")
	if err != nil {
		t.Fatal(err)
	}
	work := 10*splitLine*lines - 1
	for n := range 10 {
		if _, err = applyHunks(text, patches[0].hunks, &work); (err != nil) != (n == 9) {
			t.Errorf("section %d: %v", n+1, err)
		}
	}
	wantError(t, err, "takes too long", "Use several patches")
}

// A patch keeps the old and the new text of its files in memory until all hunks have applied.
func TestPatchSize(t *testing.T) {
	f := newPatchFixture(t)
	large := strings.Repeat("x", maxEdit-100) + "\n"
	var patch strings.Builder
	patch.WriteString("*** Begin Patch\n")
	for i := range maxPatched/maxEdit + 1 {
		name := fmt.Sprintf("large%d", i)
		f.write(t, name, large)
		fmt.Fprintf(&patch, "*** Update File: %s\n@@\n+y\n", name)
	}
	_, err := f.call(t, "apply_patch", "patch", patch.String()+"*** End Patch")
	wantError(t, err, "nothing was changed", "have more than", "use several patches")
	if got, err := os.ReadFile(filepath.Join(f.dir, "large0")); err != nil || string(got) != large {
		t.Errorf("large0 was changed, %v", err)
	}
}

// A file that moves keeps its mode.
func TestPatchMoveKeepsMode(t *testing.T) {
	f := newPatchFixture(t)
	if err := os.Chmod(filepath.Join(f.dir, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := f.call(t, "apply_patch", "patch", "*** Update File: a\n*** Move to: b\n@@\n-one\n+1\n")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(f.dir, "b"))
	if err != nil || info.Mode() != 0o755 {
		t.Errorf("the mode is %v, %v; want 0755", info.Mode(), err)
	}
}

// FuzzPatch checks that no patch breaks the parser. Applying the difference of two texts to the
// first one gives the second one.
func FuzzPatch(f *testing.F) {
	f.Add(patchedText, "one\n2\nthree\nfour\nfive\n6", "*** Update File: a\n@@ x\n-one\n+1")
	f.Add("a\n", "", "*** Begin Patch\n*** Update File: a\n*** Move to: b\n*** End of File")
	f.Add("x\n\n\nx", "\n*** End Patch\n+++ y\n--- z\n@@\n", "*** Add File: a\n+\n@@\n+x")
	f.Fuzz(func(t *testing.T, before, after, junk string) {
		if patches, err := parsePatch(junk); err == nil {
			for _, p := range patches {
				if got, err := applyHunks(before, p.hunks, new(maxCompared)); err != nil && got != "" {
					t.Errorf("hunks that don't apply make %q", got)
				}
			}
		}
		before, after = plainText(before), plainText(after)
		if before == after {
			return
		}
		patch := diff(before, after)
		patches, err := parsePatch(patch)
		if err != nil || len(patches) != 1 {
			t.Fatalf("%q is read as %v, %v", patch, patches, err)
		}
		got, err := applyHunks(before, patches[0].hunks, new(maxCompared))
		if err != nil || got != after {
			t.Errorf("%q after %q = %q, %v; want %q", before, patch, got, err, after)
		}
	})
}

// plainText changes s so that a patch can describe it. The result has whole lines without "\r"
// and no byte order mark.
func plainText(s string) string {
	s = strings.TrimLeft(strings.ReplaceAll(s[:min(len(s), 500)], "\r", ""), "\ufeff")
	if s != "" && !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	return s
}

// diff returns a patch with one hunk that has the whole file as its context.
func diff(before, after string) string {
	a, b := slices.Collect(strings.Lines(before)), slices.Collect(strings.Lines(after))
	head := 0
	for head < min(len(a), len(b)) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < min(len(a), len(b))-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	var body strings.Builder
	write := func(op string, lines []string) {
		for _, l := range lines {
			body.WriteString(op + l)
		}
	}
	write(" ", a[:head])
	write("-", a[head:len(a)-tail])
	write("+", b[head:len(b)-tail])
	write(" ", a[len(a)-tail:])
	return updateFile + " x\n@@\n" + body.String() + endOfFile + "\n"
}
