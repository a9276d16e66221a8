package checks

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// The bounds of types and packages.
const (
	maxMethods = 25
	maxFields  = 20
	maxFiles   = 20 // of a package, without tests
)

// grown lists the sizes that exceed a bound. No entry may grow. An entry must be removed when its
// size is within the bound again.
var grown = map[string]int{
	"cmd/gateway/internal/config.Config fields": 28,
}

// TestShape checks that types and packages are small enough for one person to know them. Fakes
// and the programs of deploy are excluded.
func TestShape(t *testing.T) {
	methods := make(map[string]map[string]bool) // by type; systems can have variants of a method
	fields := make(map[string]int)
	files := make(map[string]int)
	for file, text := range goFiles(t, func(name string) bool { return !isTestFile(name) }) {
		f, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		dir := strings.TrimLeft(filepath.ToSlash(filepath.Dir(file)), "./")
		if strings.HasSuffix(dir, "test") || strings.Contains(dir, "test/") ||
			strings.HasPrefix(dir, "deploy") {
			continue
		}
		files[dir]++
		for _, decl := range f.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if name := receiverName(d); name != "" {
					if methods[dir+"."+name] == nil {
						methods[dir+"."+name] = make(map[string]bool)
					}
					methods[dir+"."+name][d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					s, ok := spec.(*ast.TypeSpec)
					if !ok {
						continue
					}
					if st, ok := s.Type.(*ast.StructType); ok {
						fields[dir+"."+s.Name.Name] = st.Fields.NumFields()
					}
				}
			}
		}
	}
	for name, set := range methods {
		checkSize(t, name+" methods", len(set), maxMethods)
	}
	for name, n := range fields {
		checkSize(t, name+" fields", n, maxFields)
	}
	for dir, n := range files {
		checkSize(t, dir+" files", n, maxFiles)
	}
}

func isTestFile(name string) bool { return strings.HasSuffix(name, "_test.go") }

// receiverName returns the name of the type of which d is a method, or "" if d is a function.
func receiverName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	receiver := d.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if index, ok := receiver.(*ast.IndexExpr); ok { // a generic type
		receiver = index.X
	}
	if name, ok := receiver.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

func checkSize(t *testing.T, what string, n, most int) {
	t.Helper()
	switch known := grown[what]; {
	case n > max(most, known):
		t.Errorf("%s: %d, want %d at most", what, n, max(most, known))
	case n <= most && known > 0:
		t.Errorf("%s: %d, so that the entry in grown can go", what, n)
	}
}
