package document

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

//go:embed templates/*.md
var templates embed.FS

// SharedNames lists the shared documents. Each has a template.
var SharedNames = []string{Agents, Soul, User, Tools, Identity}

// shipped are the marks, see [mark], of the templates of this version and of all earlier
// ones. When a template changes, add an entry and keep the old one.
var shipped = []string{
	// AGENTS.md, SOUL.md, USER.md, TOOLS.md, IDENTITY.md and HEARTBEAT.md of the first version
	"88dfc3415b00aaf0", "ed5f0ad32147c795", "56e6c3bb1477c8ea", "eceea41370a83091",
	"0c45df0aa0ce11d2", "6f1eb53ab1eea8a4",
	"09b2be89ac1055b6", "9ea22c77cecd27d2", "198ca9acb75609ca", // AGENTS.md, SOUL.md, TOOLS.md
	// SOUL.md, USER.md, TOOLS.md and IDENTITY.md in other words
	"0c763882b58e4e62", "6eb2dd8a7857631a", "6da616dc1c7c3835", "043f754b39685feb",
}

// defaults are the documents, by name, that the prompt contains until people replace them: the
// templates of AGENTS.md, SOUL.md and TOOLS.md, without the note to people at their beginning. The
// other templates are forms to fill in, so they are not in the prompt.
var defaults = sync.OnceValue(func() map[string]string {
	texts := make(map[string]string)
	for _, name := range []string{Agents, Soul, Tools} {
		text, err := templates.ReadFile("templates/" + name)
		if err != nil {
			panic(fmt.Sprintf("document: %v", err)) // it is part of the program
		}
		_, rest, _ := strings.Cut(string(text), "-->")
		texts[name] = strings.TrimSpace(rest)
	}
	return texts
})

// orDefault returns the default in place of a shared document that does not exist or is an
// unchanged template. An empty document stays: its owner wants none.
func orDefault(doc Doc) Doc {
	text := defaults()[doc.Name]
	if text == "" || doc.Problem != "" || doc.Hash != "" && !doc.Template {
		return doc
	}
	doc.Text, doc.Template = text, false
	return doc
}

// mark returns a hash of a text that ignores white space.
func mark(text string) string {
	sum := sha256.Sum256([]byte(strings.Join(strings.Fields(text), " ")))
	return hex.EncodeToString(sum[:8])
}

// isTemplate reports whether the gateway has written a text as a template.
func isTemplate(text string) bool { return slices.Contains(shipped, mark(text)) }

// markerName is the file in the folder of the scopes that lists the templates created so
// far.
const markerName = ".templates"

// WriteTemplates creates the missing shared documents from templates, for people to fill in, and
// the folder of skills. It creates each only once, so a document that a person has deleted is not
// created again.
func (d *Documents) WriteTemplates() error {
	if d.shared == nil || d.scopes == nil {
		return nil
	}
	if err := d.retireHeartbeat(); err != nil {
		return fmt.Errorf("document: shared %s: %w", Heartbeat, err)
	}
	marker, err := d.scopes.ReadFile(markerName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("document: templates: %w", err)
	}
	made := strings.Fields(string(marker))
	var fresh []string
	for _, name := range append([]string{SkillsFolder}, SharedNames...) {
		if slices.Contains(made, name) {
			if err := d.renewTemplate(name); err != nil {
				return fmt.Errorf("document: template of %s: %w", name, err)
			}
			continue
		}
		if err := d.writeTemplate(name); err != nil {
			return fmt.Errorf("document: template of %s: %w", name, err)
		}
		fresh = append(fresh, name)
	}
	if len(fresh) == 0 {
		return nil
	}
	list := strings.Join(append(made, fresh...), "\n") + "\n"
	info, err := d.scopes.Lstat(markerName)
	if err != nil {
		info = nil
	}
	if err := replace(d.scopes, markerName, list, info); err != nil {
		return fmt.Errorf("document: templates: %w", err)
	}
	return nil
}

// retireHeartbeat removes the template of a shared HEARTBEAT.md. Earlier versions created
// that file and never read it; each scope has a file of its own. A file that somebody has
// changed stays.
func (d *Documents) retireHeartbeat() error {
	switch doc := d.Shared(Heartbeat); {
	case doc.Template:
		return d.shared.Remove(Heartbeat)
	case doc.Text != "" || doc.Problem != "":
		d.opts.Logger.Warn("the shared HEARTBEAT.md is not read; move its items to the HEARTBEAT.md of "+
			"a person or a group", "to", filepath.Join(d.scopes.Name(), "person-NUMBER", Heartbeat))
	}
	return nil
}

// renewTemplate replaces an unchanged template of an earlier version.
func (d *Documents) renewTemplate(name string) error {
	text, err := templates.ReadFile("templates/" + name)
	if err != nil {
		return nil // it is the folder of skills
	}
	doc := d.Shared(name)
	if !doc.Template || mark(doc.Text) == mark(string(text)) {
		return nil
	}
	info, err := d.shared.Lstat(name)
	if err == nil {
		err = replace(d.shared, name, string(text), info)
	}
	if errors.Is(err, ErrChanged) {
		return nil // by a person, in the meantime
	}
	return err
}

// writeTemplate creates a document or the folder of skills, if nothing has that name.
func (d *Documents) writeTemplate(name string) error {
	if _, err := d.shared.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if name == SkillsFolder {
		return d.shared.Mkdir(name, newDir)
	}
	text, err := templates.ReadFile("templates/" + name)
	if err != nil {
		return err
	}
	if err := replace(d.shared, name, string(text), nil); !errors.Is(err, ErrChanged) {
		return err
	}
	return nil // it was created in the meantime
}

// linkName is the name of the link in the workspace to the scopes' folders.
const linkName = "memory"

// Link creates the link "memory" in a workspace, so that people find the scopes' folders.
// If the name is in use, or the system can't create links, Link does nothing and returns
// nil. Tools that are confined to the workspace can't follow the link, because it leads
// out.
func (d *Documents) Link(workspace *os.Root) error {
	if d.scopes == nil {
		return nil
	}
	target, err := linkTarget(workspace.Name(), d.scopes.Name())
	if err != nil {
		return fmt.Errorf("document: link: %w", err)
	}
	if target == "" {
		d.opts.Logger.Info("no link to the memories: they are in the workspace")
		return nil
	}
	switch now, err := workspace.Readlink(linkName); {
	case err == nil && now == target:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		d.opts.Logger.Info("no link to the memories: the name is in use", "file", linkName)
		return nil
	}
	if err := workspace.Symlink(target, linkName); err != nil {
		d.opts.Logger.Info("no link to the memories", "file", linkName, "err", err)
	}
	return nil
}

// linkTarget returns the path from the workspace to the scopes, or "" if the scopes are in
// the workspace.
func linkTarget(workspace, scopes string) (string, error) {
	from, err := realPath(workspace)
	if err != nil {
		return "", err
	}
	to, err := realPath(scopes)
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(from, to)
	switch {
	case err != nil:
		return to, nil // on another drive
	case filepath.IsLocal(rel):
		return "", nil
	case strings.HasPrefix(rel, filepath.Join("..", "..")):
		return to, nil // far away: an absolute path survives a move of the workspace
	}
	return rel, nil // close: a relative path survives a move of both
}

// realPath returns an absolute path with all links resolved.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}
