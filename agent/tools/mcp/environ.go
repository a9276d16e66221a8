package mcp

import (
	"maps"
	"os"
	"runtime"
	"slices"
)

// Environ returns the environment of a server's process: the harmless variables of the gateway's
// environment that programs need, and env.
func Environ(env map[string]string) []string {
	names := []string{"PATH", "HOME", "LANG", "TERM", "TZ"}
	if runtime.GOOS == "windows" {
		names = append(names, "SYSTEMROOT", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE",
			"APPDATA", "LOCALAPPDATA", "PROGRAMFILES")
	}
	all := make(map[string]string)
	for _, name := range names {
		if v, ok := os.LookupEnv(name); ok {
			all[name] = v
		}
	}
	maps.Copy(all, env)
	list := []string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, name+"="+all[name])
	}
	return list
}
