package version

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"gateway/store"
)

// Export writes the history in the format of "git fast-import". The repository gets a
// branch main with one commit per version.
func (t *Tree) Export(ctx context.Context, w io.Writer) error {
	read := t.store.db.Read(ctx)
	rows, err := t.rows(read, " ORDER BY id")
	if err != nil {
		return err
	}
	// A write error stays in out and is returned by Flush.
	out := bufio.NewWriter(w)
	for _, r := range rows {
		reason := r.Reason
		if r.Change != "" {
			reason += "\n\nChange: " + r.Change
		}
		fmt.Fprintf(out, "commit refs/heads/main\ncommitter %s <gateway@localhost> %d +0000\n",
			r.Author, r.Time.Unix())
		fmt.Fprintf(out, "data %d\n%s\n", len(reason), reason)
		if err := t.exportFiles(ctx, out, r.id); err != nil {
			return err
		}
	}
	return store.Wrap(out.Flush(), "version: export %s", t.name)
}

// exportFiles writes the files that a version changed.
func (t *Tree) exportFiles(ctx context.Context, out *bufio.Writer, id int64) error {
	return store.Each(t.store.db.Read(ctx), "version: export "+t.name, func(scan store.Scan) error {
		var file, text []byte
		var removed bool // an empty text may be nil, too
		if err := scan(&file, &text, &removed); err != nil {
			return err
		}
		name := quotePath(string(file))
		if removed {
			fmt.Fprintf(out, "D %s\n", name)
			return nil
		}
		fmt.Fprintf(out, "M 100644 inline %s\ndata %d\n%s\n", name, len(text), text)
		return nil
	}, "SELECT file, text, text IS NULL FROM version_files WHERE version = $1 AND tree = $2 "+
		"ORDER BY file", id, t.name)
}

// quotePath quotes a path for fast-import, which requires escapes for these three
// characters only.
func quotePath(path string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(path) + `"`
}
