package importer

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// servers writes the servers of the Model Context Protocol. Those that were switched off stay away.
func (w *settings) servers() error {
	tools, err := w.source.config.table("tools")
	if err != nil {
		return err
	}
	all, err := tools.table("mcpServers", "mcp_servers")
	path := "tools.mcpServers"
	if w.source.kind == PicoClaw {
		var mcp object
		if mcp, err = tools.table("mcp"); err != nil || !mcp.flag("enabled", false) {
			return err
		}
		all, err = mcp.table("servers")
		path = "tools.mcp.servers"
	}
	if err != nil {
		return err
	}
	names := make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s, err := all.table(name)
		if err != nil {
			return err
		}
		if s.flag("enabled", w.source.kind == Nanobot) {
			w.server(unique(names, serverName(name)), path+"."+name, s)
		}
	}
	return nil
}

// server writes one server. path is where it stands in the other configuration.
func (w *settings) server(name, path string, s object) {
	address, program := s.text("url"), s.text("command")
	kind := s.text("type")
	if kind == "stdio" || kind == "" && program != "" {
		address = ""
	} else {
		program = ""
	}
	if text := w.String(); text != "" && !strings.HasSuffix(text, "\n\n") {
		w.line("")
	}
	w.line("[mcp.%s]", name)
	w.comment("It was %s.", path)
	var trouble []string
	if program != "" {
		var arguments []string
		if json.Unmarshal(s["args"], &arguments) != nil {
			arguments = s.texts("args")
		}
		trouble = w.program(append([]string{program}, arguments...))
	} else {
		trouble = w.web(address, kind)
	}
	trouble = append(trouble, w.allowed(s)...)
	if seconds := s.number("toolTimeout", "tool_timeout"); seconds > 0 && seconds <= 24*3600 {
		w.line("timeout = %s", quoted(fmt.Sprintf("%ds", seconds)))
	}
	if file := s.text("env_file"); file != "" && program != "" {
		trouble = append(trouble, "it has a file with variables: put those into its env")
	}
	if len(trouble) > 0 {
		w.comment("Complete it first: %s.", strings.Join(trouble, "; "))
		w.line("enabled = false")
	}
	if program != "" {
		w.comment("It runs in the sandbox: network = true gives it the network.")
		w.references(name, "env", path, s)
	} else {
		w.references(name, "headers", path, s)
	}
}

// web writes the URL of a server. PicoClaw's "sse" is streamable HTTP, too.
func (w *settings) web(address, kind string) (trouble []string) {
	switch {
	case !isWeb(address):
		return []string{"it has neither a command nor a URL with http or https"}
	case hasSecret(address) || hasToken(address):
		return []string{"its URL may have a secret in it, and is left out"}
	}
	w.line("url = %s", quoted(address))
	old := kind == "sse" || kind == "" && strings.HasSuffix(strings.TrimRight(address, "/"), "/sse")
	if w.source.kind == Nanobot && old {
		return []string{"it was reached by SSE, which is unknown here: want the URL of its " +
			"streamable HTTP"}
	}
	return nil
}

// program writes the command of a server, without arguments that may be secrets.
func (w *settings) program(command []string) (trouble []string) {
	shown := slices.Clone(command)
	for i, argument := range command {
		if before := command[max(i-1, 0)]; mayBeSecret(argument) ||
			i > 0 && strings.HasPrefix(before, "-") && announcesSecret(before) {
			shown[i] = "LEFT-OUT"
			trouble = append(trouble,
				fmt.Sprintf("argument %d may be a secret, and is left out", i))
		}
	}
	w.line("command = %s", quotedList(shown))
	return trouble
}

// allowed writes which tools of a server are used.
func (w *settings) allowed(s object) (trouble []string) {
	if s.raw([]string{"enabledTools", "enabled_tools"}) == nil {
		return nil
	}
	var list []string
	for _, tool := range s.texts("enabledTools", "enabled_tools") {
		if tool == "*" {
			return nil
		}
		if toolName.MatchString(tool) && !strings.HasPrefix(tool, "mcp_") {
			list = append(list, tool)
		} else {
			trouble = append(trouble,
				fmt.Sprintf("allow the tool %q by the server's own name", tool))
		}
	}
	if len(list) == 0 {
		return append(trouble, "no tool of it was allowed")
	}
	w.line("allow = %s", quotedList(list))
	return trouble
}

// references writes the variables or the headers of a server: where their values are to be.
func (w *settings) references(name, table, path string, s object) {
	values, err := s.table(table)
	if err != nil {
		w.comment("What it has in %s.%s can't be read.", path, table)
		return
	}
	if len(values) == 0 {
		return
	}
	w.comment("The values are in %s, %s.%s: put them into the environment.",
		w.source.shown("config.json"), path, table)
	w.line("[mcp.%s.%s]", name, table)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !entryKey.MatchString(key) {
			w.comment("Left out, for its name is none here: %q", key)
			continue
		}
		w.line("%s = %s", quoted(key), quoted("env:"+unique(w.variables, variable(name, key))))
	}
}

var (
	otherLetters = regexp.MustCompile(`[^A-Za-z0-9]+`)
	toolName     = regexp.MustCompile(`^[A-Za-z0-9_./-]+$`)
	entryKey     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

	// secretWord is part of what secrets are called.
	secretWord = regexp.MustCompile(`(?i)token|secret|passw|pwd|key|auth|bearer|credential|cookie` +
		`|header|session|dsn`)

	// assignment is a variable with its value, as "docker run -e" takes it.
	assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=.`)

	// random is what may be a token if it has both letters and digits, and identifier one that is
	// written in groups.
	random     = regexp.MustCompile(`[A-Za-z0-9]{16,}`)
	identifier = regexp.MustCompile(`[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-|\d{9,}[-:]`)
)

// mayBeSecret reports whether an argument may have a secret in it. It errs on the side of caution:
// what is left out is easily put in again.
func mayBeSecret(argument string) bool {
	if assignment.MatchString(argument) || hasToken(argument) ||
		strings.Contains(argument, "://") && hasSecret(argument) {
		return true
	}
	at := strings.IndexAny(argument, "=: ")
	return at >= 0 && at < len(argument)-1 && secretWord.MatchString(argument)
}

// hasToken reports whether a text has something in it that looks like a token.
func hasToken(text string) bool {
	mixed := func(s string) bool {
		return strings.ContainsAny(s, "0123456789") && strings.Trim(s, "0123456789") != ""
	}
	return identifier.MatchString(text) ||
		slices.ContainsFunc(random.FindAllString(text, -1), mixed)
}

// announcesSecret reports whether a flag may be followed by a secret.
func announcesSecret(flag string) bool {
	return flag == "-H" || secretWord.MatchString(flag) && !strings.Contains(flag, "=")
}

// isWeb reports whether an address is one of the web.
func isWeb(address string) bool {
	return strings.HasPrefix(address, "http://") || strings.HasPrefix(address, "https://")
}

// serverName returns a name that a server may have here.
func serverName(name string) string {
	if plainKey.MatchString(name) && len(name) <= maxServerName {
		return name
	}
	name = strings.Trim(otherLetters.ReplaceAllString(name, "-"), "-")
	if name = strings.TrimRight(name[:min(len(name), maxServerName-4)], "-"); name == "" {
		return "imported"
	}
	return name
}

// maxServerName is how long the name of a server may be, in bytes.
const maxServerName = 32

// variable returns the name of the variable in the environment for what a server calls key.
func variable(server, key string) string {
	name := strings.ToUpper(otherLetters.ReplaceAllString(server+"_"+key, "_"))
	if name[0] <= '9' || strings.HasPrefix(name, "GATEWAY_") { // these are the gateway's own
		return "MCP_" + name
	}
	return name
}

// unique returns a name, or one with a number after it if it is taken, and takes it.
func unique(taken map[string]bool, name string) string {
	free := name
	for n := 2; taken[free]; n++ {
		free = name + "_" + strconv.Itoa(n)
	}
	taken[free] = true
	return free
}
