package llm

import (
	"net/url"
	"strconv"
	"strings"
)

// ResolveRef returns the target of a reference in the JSON Schema root, "#" or "#/…", or nil if
// there is none.
func ResolveRef(root map[string]any, ref string) any {
	if ref == "#" {
		return root
	}
	rest, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil
	}
	rest, err := url.PathUnescape(rest)
	if err != nil {
		return nil
	}
	var at any = root
	for name := range strings.SplitSeq(rest, "/") {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		switch v := at.(type) {
		case map[string]any:
			at = v[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(v) {
				return nil
			}
			at = v[i]
		default:
			return nil
		}
	}
	return at
}
