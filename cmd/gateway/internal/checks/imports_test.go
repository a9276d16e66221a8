package checks

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// imports is the complete import graph of the module without tests, from the lowest packages up.
var imports = map[string]string{
	"store":                               "store/fault",
	"store/fault":                         "",
	"store/atomicfile":                    "",
	"store/plainjson":                     "",
	"store/plaintext":                     "",
	"store/storetest":                     "",
	"store/plantest":                      "store",
	"agent/llm":                           "",
	"agent/extract/document":              "store/plaintext",
	"agent/extract/document/documenttest": "",
	"memory/version":                      "store store/atomicfile store/plaintext",
	"skills":                              "store/atomicfile store/plaintext",
	"agent/extract/picture":               "",
	"channels/markup":                     "",
	"channels/recent":                     "",

	"bus":                 "store",
	"bus/bustest":         "bus",
	"memory":              "store store/atomicfile store/fault store/plainjson store/plaintext bus",
	"memory/document":     "memory",
	"agent/llm/wire":      "store/plaintext agent/llm",
	"agent/llm/openai":    "agent/llm agent/llm/wire",
	"agent/llm/anthropic": "agent/llm agent/llm/wire",
	"agent/llm/failover":  "agent/llm",
	"agent/llm/llmtest":   "agent/llm",

	"session":                           "store bus memory agent/llm",
	"agent/llm/demo":                    "store/plaintext agent/llm agent/llm/wire",
	"agent/llm/anthropic/anthropictest": "",
	"agent/llm/openai/openaitest":       "",
	"agent/suggest":                     "",
	"agent/tool": "store store/plainjson store/plaintext bus memory agent/llm " +
		"agent/suggest",
	"channels":      "bus store/plaintext",
	"channels/gate": "store store/fault bus channels channels/markup",
	"channels/router": "store store/fault store/plaintext bus channels channels/markup " +
		"channels/recent",
	"channels/supervisor": "store bus channels",
	"channels/media":      "bus channels",

	"agent/extract":  "agent/extract/document agent/extract/picture agent/tools/shell/sandbox",
	"agent/guard":    "store/plaintext",
	"agent/persona":  "bus",
	"agent/policy":   "store store/plainjson bus",
	"agent/audit":    "store store/plaintext bus",
	"agent/activity": "agent/llm",
	"agent/background": "store store/fault store/plainjson store/plaintext bus memory " +
		"memory/document memory/version session agent/audit agent/budget agent/dream " +
		"agent/llm agent/policy agent/prompt agent/question agent/schedule",
	"agent/command": "store store/plaintext bus session memory memory/document skills " +
		"agent/activity agent/audit agent/background agent/budget agent/llm agent/policy " +
		"agent/prompt agent/question agent/schedule agent/speech agent/suggest",
	"agent/dream": "store store/fault store/plainjson store/plaintext memory " +
		"memory/document memory/version agent/llm",
	"agent/prompt": "bus memory session agent/llm store/plainjson store/plaintext",
	"agent/schedule": "store store/fault store/plaintext bus memory session agent/prompt " +
		"agent/suggest",
	"agent/question": "store bus",
	"agent/budget":   "store bus agent/llm",
	"agent/observe":  "bus session agent/llm",
	"agent/modelcall": "store bus session agent/budget agent/llm agent/observe agent/policy " +
		"agent/prompt",
	"agent/attachment": "bus session agent/budget agent/extract agent/llm agent/modelcall " +
		"agent/opus agent/prompt",
	"agent/opus":  "",
	"agent/voice": "store store/fault bus agent/attachment agent/command",
	"agent/speech": "store store/plaintext bus agent/background agent/budget agent/modelcall " +
		"agent/opus",
	"agent/export": "store store/plainjson bus memory session agent/background agent/llm",
	"agent/heartbeat": "store store/plaintext bus memory memory/document session " +
		"agent/schedule",

	"agent/tools/ask":   "store/plaintext agent/tool",
	"agent/tools/clock": "agent/tool",
	"agent/tools/mcp": "store/atomicfile store/plainjson store/plaintext bus agent/llm " +
		"agent/tool",
	"agent/mcpserver":           "bus session agent/tool",
	"agent/tools/shell":         "bus memory agent/tool agent/tools/shell/sandbox",
	"agent/tools/shell/sandbox": "",
	"agent/tools/files": "store/plainjson store/plaintext bus memory agent/extract " +
		"agent/extract/document agent/suggest agent/tool agent/tools/files/osfile",
	"agent/tools/files/osfile":       "",
	"agent/tools/recall":             "store bus memory agent/tool",
	"agent/tools/jobs":               "store bus agent/schedule agent/tool",
	"agent/tools/image":              "store bus agent/guard agent/llm/openai agent/tool",
	"agent/tools/message":            "store store/plaintext bus session agent/tool",
	"agent/tools/spawn":              "store store/plaintext bus session agent/tool",
	"agent/tools/web":                "agent/extract agent/extract/document agent/guard agent/tool",
	"channels/telegram":              "bus channels channels/markup channels/recent",
	"channels/telegram/telegramtest": "channels/channeltest/notifier channels/channeltest/faults",
	"channels/discord":               "bus channels channels/markup channels/recent",
	"channels/discord/discordtest":   "channels/channeltest/notifier channels/channeltest/faults",
	"channels/whatsapp": "store bus channels channels/markup channels/recent " +
		"channels/whatsapp/internal/inorder channels/whatsapp/internal/mute " +
		"channels/whatsapp/internal/sessionlock",
	"channels/whatsapp/whatsapptest": "channels channels/channeltest/notifier channels/whatsapp " +
		"channels/whatsapp/internal/mute channels/whatsapp/internal/sessionlock",
	"channels/whatsapp/internal/inorder":     "bus channels channels/recent",
	"channels/whatsapp/internal/mute":        "",
	"channels/whatsapp/internal/sessionlock": "",
	"channels/terminal":                      "bus channels channels/terminal/screen",
	"channels/terminal/screen":               "store/atomicfile channels/markup",
	"channels/channeltest":                   "bus channels channels/channeltest/notifier",
	"channels/channeltest/notifier":          "",
	"channels/channeltest/faults":            "",

	"agent/turn": "store store/fault store/plaintext bus memory memory/document " +
		"memory/version session skills agent/activity agent/attachment agent/background " +
		"agent/budget agent/heartbeat agent/llm agent/modelcall agent/observe " +
		"agent/persona agent/policy agent/prompt agent/question agent/schedule " +
		"agent/speech agent/tool",
	"agent/pool": "store bus memory session agent/activity agent/attachment agent/background " +
		"agent/command agent/llm agent/persona agent/prompt agent/question agent/schedule " +
		"agent/turn",
	"agent": "store store/fault bus memory memory/document memory/version session skills " +
		"agent/attachment agent/audit agent/background agent/budget agent/command agent/extract " +
		"agent/llm agent/modelcall agent/observe agent/persona agent/policy " +
		"agent/pool agent/prompt agent/question agent/schedule agent/speech agent/tool agent/turn " +
		"agent/voice",

	"cmd/gateway/internal/hooks": "store store/plainjson bus session",
	"cmd/gateway/internal/ops":   "store store/atomicfile",
	"cmd/gateway/internal/config": "store/plainjson store/plaintext agent/persona agent/suggest " +
		"cmd/gateway/internal/hooks cmd/gateway/internal/ops",
	"cmd/gateway/internal/telemetry": "store bus agent agent/llm agent/observe channels/recent " +
		"cmd/gateway/internal/hooks",
	"cmd/gateway/internal/backup":    "store store/atomicfile",
	"cmd/gateway/internal/retention": "store",
	"cmd/gateway/internal/watch":     "",
	"cmd/gateway/internal/collector": "",
	"cmd/gateway/internal/doctor": "store bus agent/persona agent/policy agent/suggest " +
		"agent/tools/shell/sandbox " +
		"channels/gate channels/whatsapp cmd/gateway/internal/config cmd/gateway/internal/ops",
	"cmd/gateway/internal/importer": "agent/heartbeat agent/llm agent/schedule bus " +
		"channels/gate memory memory/document memory/version session store store/plaintext",
	"cmd/gateway/internal/display": "store/plaintext",
	"cmd/gateway/internal/app": "agent agent/activity agent/attachment agent/audit " +
		"agent/background agent/budget agent/command agent/export agent/extract " +
		"agent/guard agent/heartbeat agent/llm agent/llm/anthropic agent/llm/demo " +
		"agent/llm/failover agent/llm/openai agent/persona agent/policy agent/pool " +
		"agent/question agent/schedule agent/speech agent/tool agent/tools/ask " +
		"agent/tools/clock agent/tools/files agent/tools/image agent/tools/jobs " +
		"agent/tools/mcp agent/tools/message agent/tools/recall agent/tools/shell " +
		"agent/tools/shell/sandbox agent/tools/spawn agent/tools/web agent/turn bus " +
		"channels channels/discord channels/gate channels/markup channels/media " +
		"channels/router channels/supervisor channels/telegram channels/terminal " +
		"channels/whatsapp cmd/gateway/internal/backup cmd/gateway/internal/config " +
		"cmd/gateway/internal/display cmd/gateway/internal/doctor " +
		"cmd/gateway/internal/hooks cmd/gateway/internal/ops " +
		"cmd/gateway/internal/retention cmd/gateway/internal/telemetry " +
		"cmd/gateway/internal/watch memory memory/document memory/version session skills " +
		"store store/plaintext",
	"cmd/gateway/internal/cli": "agent/audit agent/background agent/budget agent/command " +
		"agent/export agent/llm agent/mcpserver agent/policy agent/schedule agent/suggest bus " +
		"channels channels/gate channels/media channels/router channels/supervisor " +
		"channels/terminal channels/whatsapp cmd/gateway/internal/app cmd/gateway/internal/backup " +
		"cmd/gateway/internal/collector cmd/gateway/internal/config cmd/gateway/internal/display " +
		"cmd/gateway/internal/doctor cmd/gateway/internal/importer cmd/gateway/internal/ops " +
		"cmd/gateway/internal/service cmd/gateway/internal/setup memory memory/document " +
		"memory/version session skills store store/plaintext",
	"cmd/gateway/internal/setup": "agent/llm channels/telegram cmd/gateway/internal/app " +
		"cmd/gateway/internal/config " +
		"cmd/gateway/internal/display cmd/gateway/internal/doctor cmd/gateway/internal/service " +
		"store/atomicfile",
	"cmd/gateway/internal/service": "cmd/gateway/internal/config deploy",
	"cmd/gateway/internal/e2e":     "",
	"cmd/gateway/internal/checks":  "",
	"cmd/gateway":                  "cmd/gateway/internal/cli",

	"deploy/bench": "agent/llm/openai/openaitest channels/discord/discordtest " +
		"channels/telegram/telegramtest channels/whatsapp/whatsapptest",
	"deploy":      "",
	"deploy/sbom": "",
}

const repository = "../../../.."

// TestImports checks that the import graph is exactly the one in the table. So an import that is
// no longer needed must leave the table, too.
func TestImports(t *testing.T) {
	found := make(map[string][]string)
	for file := range sources(t) {
		pkg, _ := filepath.Rel(repository, filepath.Dir(file))
		pkg = filepath.ToSlash(pkg)
		if found[pkg] == nil {
			found[pkg] = []string{}
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range f.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if dep, ours := strings.CutPrefix(name, "gateway/"); ours {
				found[pkg] = append(found[pkg], dep)
			}
		}
	}
	for pkg, deps := range found {
		allowed, ok := imports[pkg]
		if !ok {
			t.Errorf("%s has no line in the table", pkg)
			continue
		}
		slices.Sort(deps)
		deps = slices.Compact(deps)
		want := strings.Fields(allowed)
		slices.Sort(want)
		if !slices.Equal(deps, want) {
			t.Errorf("%s imports %q, the table says %q", pkg, deps, want)
		}
	}
	for pkg := range imports {
		if _, ok := found[pkg]; !ok {
			t.Errorf("%s is in the table and has no files", pkg)
		}
	}
}

// sources returns the files of the module without tests, with their content.
func sources(t *testing.T) map[string]string {
	t.Helper()
	return goFiles(t, func(name string) bool { return !strings.HasSuffix(name, "_test.go") })
}

func goFiles(t *testing.T, want func(name string) bool) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(repository, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() != ".." && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if strings.HasSuffix(file, ".go") && want(file) {
			text, err := readFile(file)
			if err != nil {
				return err
			}
			files[file] = text
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
