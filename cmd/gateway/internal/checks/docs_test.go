package checks

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gateway/agent/activity"
	"gateway/agent/llm"
	"gateway/agent/tool"
	"gateway/cmd/gateway/internal/cli"
	"gateway/cmd/gateway/internal/config"
)

var (
	block     = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")
	reference = regexp.MustCompile(`"env:(\w+)"`)
	secret    = regexp.MustCompile(`"file:([\w-]+)"`)
	plainWord = regexp.MustCompile(`^[a-z][a-z-]*$`)

	toolRow  = regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|.*\\| (?:guest|user) \\|$")
	toolName = regexp.MustCompile("`(\\w+)`")

	codeName = regexp.MustCompile("`([\\w./]+)`")

	inlineCommand = regexp.MustCompile("`(gateway\\s[^`]+)`")
)

// TestDocs checks that each configuration in the documents is valid and that each command exists.
func TestDocs(t *testing.T) {
	files, err := filepath.Glob("../../../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no documents: %v", err)
	}
	for _, file := range append(files, "../../../../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range block.FindAllStringSubmatch(string(text), -1) {
			switch b[1] {
			case "toml":
				checkConfig(t, file, b[2])
			case "sh":
				for line := range strings.Lines(b[2]) {
					checkCommand(t, file, line)
				}
			}
		}
		prose := block.ReplaceAllString(string(text), "")
		for _, span := range inlineCommand.FindAllStringSubmatch(prose, -1) {
			checkCommand(t, file, span[1])
		}
	}
}

func checkConfig(t *testing.T, file, text string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	env := []string{"HOME=" + home, "GATEWAY_HOME=" + home}
	for _, name := range secret.FindAllStringSubmatch(text, -1) {
		err := os.WriteFile(filepath.Join(home, name[1]), []byte("0123456789abcdef"), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range reference.FindAllStringSubmatch(text, -1) {
		env = append(env, name[1]+"=0123456789abcdef0123456789abcdef")
	}
	if _, err := config.Load(path, env); err != nil {
		t.Errorf("%s: %v in\n%s", file, err, text)
	}
}

func checkCommand(t *testing.T, file, line string) {
	t.Helper()
	words := strings.Fields(line)
	if len(words) == 0 || words[0] != "gateway" {
		return
	}
	n := 1
	for n < len(words) && plainWord.MatchString(words[n]) {
		n++
	}
	cmd, rest, err := cli.NewCommand().Find(words[1:n])
	if err != nil || cmd.HasSubCommands() && n > 1 || len(rest) > 0 && cmd.Args(cmd, rest) != nil {
		t.Errorf("%s: there is no command %q: %v", file, strings.TrimSpace(line), err)
	}
}

// TestToolTable checks that docs/tools.md lists every tool, because errors about the names of tools
// refer to it.
func TestToolTable(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/tools.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, row := range toolRow.FindAllStringSubmatch(string(text), -1) {
		for _, name := range toolName.FindAllStringSubmatch(row[1], -1) {
			listed = append(listed, name[1])
		}
	}
	names := append(config.ToolNames(), "mcp_NAME_TOOL")
	slices.Sort(names)
	slices.Sort(listed)
	if !slices.Equal(listed, names) {
		t.Errorf("docs/tools.md lists\n%q, and the tools are\n%q", listed, names)
	}
}

// otherNames has words of the pages for developers that look like names but are not in Go code.
var otherNames = map[string]bool{"defaults.toml": true, "testing/synctest": true, "chores": true,
	"mcp_NAME_TOOL": true}

// TestNames checks that what the pages for developers name is declared or used in Go code, a file
// or a folder.
func TestNames(t *testing.T) {
	words := make(map[string]bool)
	for file, text := range goFiles(t, func(string) bool { return true }) {
		words[filepath.Base(file)], words[filepath.Base(filepath.Dir(file))] = true, true
		f, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				words[n.Name.Name] = true
			case *ast.TypeSpec:
				words[n.Name.Name] = true
			case *ast.SelectorExpr:
				words[n.Sel.Name] = true
			case *ast.Field:
				for _, name := range n.Names {
					words[name.Name] = true
				}
			case *ast.ValueSpec:
				for _, name := range n.Names {
					words[name.Name] = true
				}
			}
			return true
		})
	}
	for _, page := range []string{"contributing.md", "extending.md"} {
		text, err := os.ReadFile("../../../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, span := range codeName.FindAllStringSubmatch(string(block.ReplaceAll(text, nil)), -1) {
			name := span[1]
			_, err := os.Stat("../../../../" + name)
			last := name[strings.LastIndexAny(name, "/.")+1:]
			if err != nil && !words[path.Base(name)] && !words[last] && !otherNames[name] {
				t.Errorf("docs/%s names %s, which does not exist", page, name)
			}
		}
	}
}

// TestActivityWords checks that a chat describes each tool in words while the tool runs.
func TestActivityWords(t *testing.T) {
	for _, name := range append(config.ToolNames(), tool.MoreName) {
		if line := activity.Line([]llm.ToolCall{{Name: name}}); strings.Contains(line, "`") {
			t.Errorf("agent/activity has no words for %s: %q", name, line)
		}
	}
}
