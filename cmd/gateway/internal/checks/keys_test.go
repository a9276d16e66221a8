package checks

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gateway/cmd/gateway/internal/config"
)

// through maps keys that the program does not read directly to the fields and methods that are made
// from them.
var through = map[string]string{"Gateway.Timezone": "Gateway.Location", "Store.URL": "Store.Path",
	"Model.Fallback": "Model.WithFallbacks"}

// TestEveryKeyHasAReader checks that the program reads each key of the configuration.
func TestEveryKeyHasAReader(t *testing.T) {
	read := make(map[string]bool) // selected fields in packages app and cli, such as Agent.Slots
	for file := range sources(t) {
		if dir := filepath.Base(filepath.Dir(file)); dir != "app" && dir != "cli" {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if holder, ok := sel.X.(*ast.SelectorExpr); ok {
					read[holder.Sel.Name+"."+sel.Sel.Name] = true
				}
				read["."+sel.Sel.Name] = true
			}
			return true
		})
	}
	for _, key := range keys(reflect.TypeFor[config.Config](), "") {
		if derived, ok := through[key]; ok {
			key = derived
		}
		section, name, _ := strings.Cut(key, ".")
		if !read[key] && !(isEntry(section) && read["."+name]) {
			t.Errorf("nothing reads %s", key)
		}
	}
}

// isEntry reports whether the program reads a section through a variable, such as an entry of a
// map.
func isEntry(section string) bool {
	return slices.Contains([]string{"Model", "Channel", "Log", "Tool", "Root", "Server", "Budget",
		"Exec", "Web", "Hook", "Persona", "Policy"}, section)
}

// keys returns the keys of a configuration struct, as Section.Field.
func keys(t reflect.Type, section string) []string {
	var list []string
	for _, field := range reflect.VisibleFields(t) {
		key, ok := field.Tag.Lookup("key")
		if !ok || key == "-" || field.Anonymous {
			continue
		}
		typ := field.Type
		if typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		if typ.Kind() == reflect.Struct && section == "" {
			list = append(list, keys(typ, typ.Name())...)
			continue
		}
		list = append(list, section+"."+field.Name)
	}
	return list
}
