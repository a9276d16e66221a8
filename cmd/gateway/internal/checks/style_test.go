package checks

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func readFile(name string) (string, error) {
	text, err := os.ReadFile(name)
	return string(text), err
}

// The bounds of the house style.
const (
	maxFileLines     = 600
	maxFunctionLines = 80
	maxColumns       = 100
	tabColumns       = 1
	minComments      = 15 // percentage of the non-blank lines that have a comment
)

// forbidden matches names of packages that say nothing about the package.
var forbidden = regexp.MustCompile(`^(util|utils|common|types|interfaces|helpers|misc|manager)$`)

// TestStyle checks the rules of the house style that a program can check.
func TestStyle(t *testing.T) {
	comments := make(map[string]bool) // package folders, and whether they have a comment
	commented, lines := 0, 0          // without tests
	for file, text := range goFiles(t, func(string) bool { return true }) {
		test := strings.HasSuffix(file, "_test.go")
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, file, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(file)
		if !test {
			comments[dir] = comments[dir] || f.Doc != nil
			commented += commentedLines(fset, f)
			lines += nonBlankLines(text)
		}
		if forbidden.MatchString(f.Name.Name) {
			t.Errorf("%s: package %s says nothing about what it provides", file, f.Name.Name)
		}
		checkLines(t, file, text)
		main := strings.Contains(filepath.ToSlash(file), "cmd/gateway/main.go") ||
			strings.Contains(filepath.ToSlash(file), "deploy/")
		for _, decl := range f.Decls {
			checkDeclaration(t, fset, decl, test)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			checkNode(t, fset, n, test, main)
			return true
		})
	}
	for dir, ok := range comments {
		if !ok {
			t.Errorf("%s has no package comment", dir)
		}
	}
	if 100*commented < minComments*lines {
		t.Errorf("%d of %d lines have a comment, want %d %%", commented, lines, minComments)
	}
	t.Logf("%.1f %% of the lines have a comment", 100*float64(commented)/float64(lines))
}

// commentedLines returns the number of lines with a comment.
func commentedLines(fset *token.FileSet, f *ast.File) (n int) {
	for _, group := range f.Comments {
		n += fset.Position(group.End()).Line - fset.Position(group.Pos()).Line + 1
	}
	return n
}

func nonBlankLines(text string) (n int) {
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) != "" {
			n++
		}
	}
	return n
}

func checkLines(t *testing.T, file, text string) {
	t.Helper()
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\n")
		columns := utf8.RuneCountInString(line) + strings.Count(line, "\t")*(tabColumns-1)
		if columns > maxColumns {
			t.Errorf("%s:%d: %d columns, want %d", file, n, columns, maxColumns)
		}
	}
	if n > maxFileLines {
		t.Errorf("%s: %d lines, want %d at most", file, n, maxFileLines)
	}
}

// early lists the files whose init function does something for which main would be too late.
// TestEarly of package e2e checks that it runs early.
var early = []string{
	"agent/tools/shell/sandbox/supervise_linux.go",
	"cmd/gateway/internal/collector/collector.go",
}

func isEarly(file string) bool {
	return slices.ContainsFunc(early, func(name string) bool {
		return strings.HasSuffix(filepath.ToSlash(file), "/"+name)
	})
}

func checkDeclaration(t *testing.T, fset *token.FileSet, decl ast.Decl, test bool) {
	t.Helper()
	at := fset.Position(decl.Pos())
	switch d := decl.(type) {
	case *ast.FuncDecl:
		lines := fset.Position(d.End()).Line - at.Line + 1
		if lines > maxFunctionLines && !test { // a table of cases may be long
			t.Errorf("%s: %s has %d lines, want %d at most", at, d.Name.Name, lines, maxFunctionLines)
		}
		if d.Name.Name == "init" && d.Recv == nil && !isEarly(at.Filename) {
			t.Errorf("%s: init hides what happens at start", at)
		}
		if !test && d.Name.IsExported() && d.Doc == nil && !explained(d) {
			t.Errorf("%s: %s is exported and has no comment", at, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			s, ok := spec.(*ast.TypeSpec)
			if ok && !test && s.Name.IsExported() && s.Doc == nil && d.Doc == nil {
				t.Errorf("%s: %s is exported and has no comment", at, s.Name.Name)
			}
		}
	}
}

// explained reports whether d is a method that needs no comment: a method of an unexported type,
// or of a well-known interface.
func explained(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return false
	}
	receiver := d.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if name, ok := receiver.(*ast.Ident); ok && !name.IsExported() {
		return true
	}
	switch d.Name.Name {
	case "Error", "Unwrap", "String", "ServeHTTP", "RoundTrip":
		return true
	}
	return false
}

// checkNode refuses contexts that are created outside of main, contexts in structs, and
// time.Sleep.
func checkNode(t *testing.T, fset *token.FileSet, n ast.Node, test, main bool) {
	t.Helper()
	switch n := n.(type) {
	case *ast.SelectorExpr:
		x, ok := n.X.(*ast.Ident)
		if !ok {
			return
		}
		switch name := x.Name + "." + n.Sel.Name; {
		case name == "context.Background" && !test && !main, name == "context.TODO":
			t.Errorf("%s: %s outside main: take the caller's", fset.Position(n.Pos()), name)
		case name == "time.Sleep" && !test:
			t.Errorf("%s: time.Sleep can't be cancelled: select on a timer", fset.Position(n.Pos()))
		}
	case *ast.StructType:
		for _, field := range n.Fields.List {
			sel, ok := field.Type.(*ast.SelectorExpr)
			if ok && sel.Sel.Name == "Context" && len(field.Names) > 0 && !perCall(field) {
				t.Errorf("%s: a context is a parameter, never a field", fset.Position(field.Pos()))
			}
		}
	}
}

// perCall reports whether the comment of a field says that its struct lives for one call only.
func perCall(field *ast.Field) bool {
	return strings.Contains(field.Comment.Text(), "of this call")
}
