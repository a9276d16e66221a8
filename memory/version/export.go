package version

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
)

// Export writes the history in the format of "git fast-import". The repository gets a
// branch main with one commit per version.
func (t *Tree) Export(ctx context.Context, w io.Writer) error {
	read := t.store.db.Read(ctx)
	rows, err := t.rows(read, " ORDER BY id")
	if err != nil {
		return err
	}
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
	if err := out.Flush(); err != nil {
		return fmt.Errorf("version: export %s: %w", t.name, err)
	}
	return nil
}

// exportFiles writes the files that a version changed.
func (t *Tree) exportFiles(ctx context.Context, out *bufio.Writer, id int64) error {
	files, err := t.store.db.Read(ctx).Query("SELECT file, text FROM version_files "+
		"WHERE version = $1 AND tree = $2 ORDER BY file", id, t.name)
	if err != nil {
		return fmt.Errorf("version: export %s: %w", t.name, err)
	}
	defer files.Close()
	for files.Next() {
		var file, text []byte
		if err := files.Scan(&file, &text); err != nil {
			return fmt.Errorf("version: export %s: %w", t.name, err)
		}
		name := quotePath(string(file))
		if text == nil {
			fmt.Fprintf(out, "D %s\n", name)
			continue
		}
		fmt.Fprintf(out, "M 100644 inline %s\ndata %d\n%s\n", name, len(text), text)
	}
	return files.Err()
}

// quotePath quotes a path for fast-import, which requires escapes for these three
// characters only.
func quotePath(path string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(path) + `"`
}
