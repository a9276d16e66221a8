package files

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

const notebook = `{
 "cells": [
  {
   "cell_type": "markdown",
   "id": "intro",
   "metadata": {},
   "source": [
    "# <Title> & ä\n",
    "text"
   ]
  },
  {
   "cell_type": "code",
   "execution_count": 3,
   "id": "c0de",
   "metadata": {"tags": ["keep"], "unknown": 1e3},
   "outputs": [
    {
     "name": "stdout",
     "output_type": "stream",
     "text": [
      "42\n"
     ]
    }
   ],
   "source": [
    "print(42)"
   ]
  }
 ],
 "metadata": {
  "zeta": {},
  "kernelspec": {
   "name": "python3"
  }
 },
 "nbformat": 4,
 "nbformat_minor": 5
}
`

// tidy is notebook after it was written again.
var tidy = strings.Replace(notebook, `{"tags": ["keep"], "unknown": 1e3}`, `{
    "tags": [
     "keep"
    ],
    "unknown": 1e3
   }`, 1)

func TestNotebookEdit(t *testing.T) {
	_, printed, _ := strings.Cut(tidy, `   "outputs": [`)
	printed, _, _ = strings.Cut(printed, `   "source": [`)
	printed = `   "outputs": [` + printed
	cleared := strings.Replace(strings.Replace(tidy, printed, `   "outputs": [],`+"\n", 1),
		`"execution_count": 3`, `"execution_count": null`, 1)
	tests := []struct{ name, args, want string }{
		{"replace by id", "cell=c0de source=x", strings.Replace(cleared, "print(42)", "x", 1)},
		{"replace by number", "cell=1 source=x", strings.Replace(cleared, "print(42)", "x", 1)},
		{"replace text", "cell=0 source=x",
			strings.Replace(tidy, "\"# <Title> & ä\\n\",\n    \"text\"", `"x"`, 1)},
		{"delete", "cell=0 mode=delete",
			"{\n \"cells\": [\n" + tidy[strings.Index(tidy, "  {\n   \"cell_type\": \"code\""):]},
		{"insert", "cell=0 mode=insert cell_type=code source=y", strings.Replace(tidy,
			"  },\n  {\n   \"cell_type\": \"code\"", "  },\n  {\n   \"cell_type\": \"code\",\n"+
				"   \"execution_count\": null,\n   \"id\": \"ID\",\n   \"metadata\": {},\n"+
				"   \"outputs\": [],\n   \"source\": [\n    \"y\"\n   ]\n"+
				"  },\n  {\n   \"cell_type\": \"code\"", 1)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			f.write(t, "n.ipynb", notebook)
			got, err := f.call(t, "notebook_edit", append(pairs(tt.args), "path", "n.ipynb")...)
			if err != nil || !strings.HasPrefix(got, "n.ipynb: cell ") {
				t.Errorf("notebook_edit = %q, %v", got, err)
			}
			text, err := os.ReadFile(filepath.Join(f.dir, "n.ipynb"))
			if err != nil {
				t.Fatal(err)
			}
			text = regexp.MustCompile(`"id": "[a-z2-7]{8}"`).ReplaceAll(text, []byte(`"id": "ID"`))
			if string(text) != tt.want {
				t.Errorf("the notebook is %s\nwant %s", text, tt.want)
			}
		})
	}
}

func TestNotebookForms(t *testing.T) {
	f := newFixture(t)
	f.write(t, "flat.ipynb",
		`{"cells":[{"cell_type":"raw","source":"a"}],"nbformat":4,"nbformat_minor":2}`)
	_, err := f.call(t, "notebook_edit", "path", "flat.ipynb", "cell", "0", "source", "<b>\n")
	if err != nil {
		t.Fatal(err)
	}
	f.wantFile(t, "flat.ipynb",
		`{"cells":[{"cell_type":"raw","source":"<b>\n"}],"nbformat":4,"nbformat_minor":2}`)
	f.write(t, "n.ipynb", notebook)
	got, err := f.call(t, "read_file", "path", "n.ipynb")
	for _, part := range []string{"--- cell 0, markdown, id intro", "--- cell 1, code, id c0de",
		"\tprint(42)", "\t--- printed", "\t42\n", "notebook_edit"} {
		if err != nil || !strings.Contains(got, part) {
			t.Errorf("read_file = %q, %v; want %q in it", got, err, part)
		}
	}
	f.write(t, "old.ipynb", `{"nbformat":3,"worksheets":[]}`)
	f.write(t, "no.ipynb", `{"cells":[`)
	for _, tt := range []struct{ args, want string }{
		{"path=n.ipynb cell=7 source=x", `there is no cell "7"; it has 2`},
		{"path=n.ipynb cell=1", "source is missing"},
		{"path=n.ipynb source=x", "cell is missing"},
		{"path=n.ipynb source=x mode=insert", "cell_type is missing"},
		{"path=n.ipynb source=x mode=change", "want replace, insert or delete"},
		{"path=old.ipynb source=x cell=0", "not a notebook of format 4"},
		{"path=no.ipynb source=x cell=0", "not valid JSON"},
		{"path=docs/x.ipynb source=x cell=0", "may only be read"},
		{"path=gone.ipynb source=x cell=0", "there is no"},
	} {
		_, err := f.call(t, "notebook_edit", pairs(tt.args)...)
		wantError(t, err, tt.want)
	}
	f.wantFile(t, "n.ipynb", notebook)
}

// A notebook is refused if its indentation would make it huge. The refusal comes before the text
// is allocated.
func TestNotebookGrows(t *testing.T) {
	f := newFixture(t)
	deep := strings.Repeat("[", 1000) + strings.Repeat("0,", 1000) + "0" + strings.Repeat("]", 1000)
	cells := `"cells":[{"cell_type":"raw","source":"a\\\",[[["}],"nbformat":4,"nbformat_minor":2`
	for name, text := range map[string]string{
		"wide": "{\n" + strings.Repeat(" ", 20_000) + cells + `,"metadata":{"x":` +
			"[" + strings.Repeat("0,", 1000) + "0]}}",
		"deep": "{\n" + strings.Repeat(" ", 50) + cells + `,"metadata":{"x":` + deep + "}}",
	} {
		f.write(t, name+".ipynb", text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := f.call(t, "notebook_edit", "path", name+".ipynb", "cell", "0", "source", "b")
		runtime.ReadMemStats(&after)
		wantError(t, err, "more than 16777216 bytes")
		if used := after.TotalAlloc - before.TotalAlloc; used > 4*maxEdit {
			t.Errorf("the refused edit of %s has taken %d MiB", name, used>>20)
		}
		f.wantFile(t, name+".ipynb", text)
	}
}

// A notebook keeps its byte order mark and its line ends.
func TestNotebookKeepsForm(t *testing.T) {
	f := newFixture(t)
	crlf := func(s string) string { return "\ufeff" + strings.ReplaceAll(s, "\n", "\r\n") }
	f.write(t, "n.ipynb", crlf(tidy))
	_, err := f.call(t, "notebook_edit", "path", "n.ipynb", "cell", "intro", "source", "new")
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(tidy, "\"# <Title> & ä\\n\",\n    \"text\"", `"new"`, 1)
	f.wantFile(t, "n.ipynb", crlf(changed))
}
