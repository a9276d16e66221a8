// Package cli implements the command line of the gateway, with one file per command.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	_ "time/tzdata" // zone names for systems without zone data

	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/collector"
	"gateway/cmd/gateway/internal/config"
	"gateway/store"
	"gateway/store/plaintext"
)

// Main runs the command line and returns the exit code.
func Main(ctx context.Context) int {
	// A helper comes before everything else: its arguments are not those of the command line, and
	// it must not read the configuration.
	if code, ours := app.RunHelper(); ours {
		return code
	}
	collector.Watch()
	app.Prepare()
	for {
		err := runCommand(ctx)
		if !errors.Is(err, app.ErrRestart) {
			return exitCode(err)
		}
		if err := app.Restart(); err != nil { // the loop runs the present program again
			fmt.Fprintln(os.Stderr, "gateway:", err)
		}
	}
}

// runCommand runs the command line until it ends or a signal cancels it.
func runCommand(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills the process
	root := NewCommand()
	out := &output{to: root.OutOrStdout()}
	root.SetOut(out)
	err := plainUsage(root.ExecuteContext(ctx))
	if errors.Is(err, app.ErrRestart) && ctx.Err() != nil {
		return nil // a signal came during the restart
	}
	return cmp.Or(err, out.lost)
}

// An output keeps the first error of its writes, because the methods with which commands print
// return none.
type output struct {
	to   io.Writer
	lost error
}

// Write implements [io.Writer].
func (o *output) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	if err != nil && o.lost == nil {
		o.lost = fmt.Errorf("the output is not complete: %w", err)
	}
	return n, err
}

// exitCode prints an error and returns the exit code for it.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "gateway:", plainText(err))
	if _, ok := errors.AsType[app.UsageError](err); ok {
		return app.ExitUsage
	}
	return app.ExitFailure
}

// errNoData means that no gateway has run in the home yet.
var errNoData = errors.New("no data")

// Patterns of the library's errors about missing flags.
var (
	missingFlag   = plaintext.Pattern(`^at least one of the flags in the group \[(.*)\] is required`)
	manyFlags     = plaintext.Pattern(`^if any flags in the group .* \[(.*)\] were all set$`)
	requiredFlags = plaintext.Pattern(`^required flag\(s\) "(.*)" not set`)
)

// plainUsage returns err. It replaces errors of the command line library by an [app.UsageError] in
// plain words.
func plainUsage(err error) error {
	if err == nil {
		return nil
	}
	if m := missingFlag().FindStringSubmatch(err.Error()); m != nil {
		return app.UsageErrorf("want one of --%s", strings.Join(strings.Fields(m[1]), ", --"))
	}
	if m := manyFlags().FindStringSubmatch(err.Error()); m != nil {
		return app.UsageErrorf("want only one of --%s", strings.Join(strings.Fields(m[1]), ", --"))
	}
	if m := requiredFlags().FindStringSubmatch(err.Error()); m != nil {
		return app.UsageErrorf("want --%s", strings.ReplaceAll(m[1], `", "`, " and --"))
	}
	return err
}

// atFault returns the path at fault, or "" if it is the home or a folder above it. The workspace or
// the database can be elsewhere.
func atFault(home string, err error) string {
	e, ok := errors.AsType[*fs.PathError](err)
	if !ok || !filepath.IsAbs(e.Path) || config.Within(home, e.Path) {
		return ""
	}
	// Below a home that is a file, any path fails.
	if info, err := os.Stat(home); config.Within(e.Path, home) && (err != nil || !info.IsDir()) {
		return ""
	}
	return e.Path
}

// plainText returns the text of an error as people read it: what happened and what to do.
func plainText(err error) string {
	home, ok := errors.AsType[*app.HomeError](err)
	if !ok {
		return err.Error()
	}
	place, elsewhere := home.Home, "or set GATEWAY_HOME to another folder"
	if at := atFault(home.Home, err); at != "" {
		place = at
		if !config.Within(place, home.Home) {
			elsewhere = "or set another path in the configuration"
		}
	}
	switch {
	case errors.Is(err, store.ErrLocked):
		return fmt.Sprintf("a gateway is running in %s already. Talk to it with \"gateway chat\", "+
			"stop it, %s.", home.Home, elsewhere)
	case errors.Is(err, errNoData):
		return fmt.Sprintf("%s has no data yet. Start the gateway once with \"gateway\", or set "+
			"GATEWAY_HOME to the folder that it uses.", home.Home)
	case errors.Is(err, syscall.EROFS):
		return fmt.Sprintf("%s is on a read-only file system. Mount it writable, %s.", place, elsewhere)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("%s can't be written. Give its folder to this user, %s.", place, elsewhere)
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrExist):
		return fmt.Sprintf("%s is not a folder. Move that file away, %s.", place, elsewhere)
	case store.IsDenied(err):
		return fmt.Sprintf("the database in %s can't be opened for writing. Let this user write it and "+
			"its folder, mount its disk writable, %s.", home.Home, elsewhere)
	case store.IsFull(err):
		return fmt.Sprintf("the disk that holds %s is full. Free some space; nothing was lost.",
			home.Home)
	case store.IsBusy(err):
		return fmt.Sprintf("another program has locked the database in %s. End that program, such as "+
			"sqlite3 or a backup tool, and try again; nothing was lost.", home.Home)
	case store.IsDamaged(err):
		return fmt.Sprintf("the database in %s is damaged: %v. Restore a backup: \"gateway restore "+
			"FILE --force\" moves the damaged files aside.", home.Home, home.Unwrap())
	case errors.Is(err, store.ErrNewer):
		return fmt.Sprintf("the data in %s was written by a newer gateway. Upgrade this one, %s.",
			home.Home, elsewhere)
	}
	return err.Error()
}
