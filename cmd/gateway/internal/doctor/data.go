package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"gateway/agent/policy"
	"gateway/bus"
	"gateway/cmd/gateway/internal/config"
	"gateway/store"
)

// examineFile reports where the configuration comes from, and which keys have no effect. The
// configuration was validated before.
func (c Case) examineFile(context.Context) []Finding {
	if warnings := c.Config.Warnings(); warnings != nil {
		return subject{"config", "Configuration"}.bad("has settings without effect: "+warnings.Error(),
			"Correct these settings; gateway config check names their lines.")
	}
	if _, err := os.Stat(c.File); err != nil {
		return subject{"config", "Configuration"}.ok("valid; there is no file " + c.File)
	}
	return subject{"config", "Configuration"}.ok("valid, " + c.File)
}

// examineHome checks the data directory.
func (c Case) examineHome(context.Context) []Finding {
	about := subject{"home", "Data directory"}
	home := c.Config.Gateway.Home
	info, err := os.Stat(home)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return about.note("does not exist yet")
	case err != nil:
		return about.bad(err.Error(), "Give this user access, or set GATEWAY_HOME to another folder.")
	case !info.IsDir():
		return about.bad(home+" is not a folder",
			"Move that file away, or set GATEWAY_HOME to another folder.")
	case info.Mode().Perm()&0o077 != 0 && modes:
		return about.bad(fmt.Sprintf("%s, mode %04o", home, info.Mode().Perm()),
			"Other users of this machine can read it: chmod 700 "+home)
	}
	// Root can write everywhere, so the owner is compared, too.
	if owner, _, ok := OwnerOf(info); ok && owner != os.Geteuid() {
		return about.bad(fmt.Sprintf("%s belongs to user %d, and this is user %d", home, owner,
			os.Geteuid()), "Run the gateway and its commands as the user who owns it, or give it to this "+
			"one: chown -R "+strconv.Itoa(os.Geteuid())+" "+home)
	}
	if err := tryWrite(home); err != nil {
		return about.bad(home+" can't be written",
			"Give the folder to this user, or set GATEWAY_HOME to another one.")
	}
	return about.ok(home)
}

// modes reports whether file modes have a meaning on this system.
const modes = runtime.GOOS != "windows"

// tryWrite creates a file in a folder and removes it. The mode does not tell whether that works,
// for example on a read-only file system.
func tryWrite(dir string) error {
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// Minimum free space on a disk: in bytes, and in files that can still be created.
const (
	minBytes = 100 << 20
	minFiles = 1_000
)

// examineDisk checks the free space for data, for the database and for the workspace.
func (c Case) examineDisk(context.Context) []Finding {
	var list []Finding
	g := c.Config.Gateway
	dirs := []string{g.Home}
	// What is in the home is taken to be on the same disk.
	for _, dir := range []string{filepath.Dir(c.Config.Store.Path()), g.Workspace} {
		if !config.Within(dir, g.Home) {
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range dirs {
		s, err := c.Disk(existing(dir))
		switch {
		case err != nil:
			list = append(list, subject{"disk", "Disk"}.note("can't be examined: "+err.Error())...)
		case s.Free < minBytes:
			list = append(list, subject{"disk", "Disk"}.bad(fmt.Sprintf("%d MB are free where %s is",
				s.Free>>20, dir), "Free some space, or keep less data: [media], [retention].")...)
		case s.Counts && s.Files < minFiles:
			list = append(list, subject{"disk", "Disk"}.bad(fmt.Sprintf("only %d files can still be "+
				"created where %s is", s.Files, dir),
				"Remove files that are not needed: the disk has room, but no inodes.")...)
		default:
			list = append(list, subject{"disk", "Disk"}.ok(fmt.Sprintf("%d MB are free where %s is",
				s.Free>>20, dir))...)
		}
	}
	return list
}

// existing returns dir, or its nearest parent folder that exists.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
		above := filepath.Dir(dir)
		if above == dir {
			return dir
		}
		dir = above
	}
}

// examineFiles checks whether other users can read the files with secrets.
func (c Case) examineFiles(context.Context) []Finding {
	var list []Finding
	for _, file := range c.privateFiles() {
		if mode, open := Exposed(file, c.Config.Gateway.Home); open {
			list = append(list, subject{"files", "File"}.bad(fmt.Sprintf("%s has mode %04o", file, mode),
				"Other users of this machine can read it: chmod 600 "+file+", or gateway security --fix")...)
		}
	}
	if len(list) == 0 {
		return subject{"files", "Files"}.ok("only this user can read the files with secrets")
	}
	return list
}

// privateFiles returns the existing files that other users must not read.
func (c Case) privateFiles() []string {
	db := c.Config.Store.Path()
	home := c.Config.Gateway.Home
	list := []string{db, db + "-wal", db + "-shm", filepath.Join(home, "http.json"),
		filepath.Join(home, "skills.json"), c.Config.Log.File}
	if c.literal() {
		list = append(list, c.File)
	}
	for name, ch := range c.Config.Channels {
		if ch.Type == "whatsapp" && c.WhatsApp != nil {
			list = append(list, c.WhatsApp(name))
		}
	}
	// This also drops "", which stands for no log file.
	list = slices.DeleteFunc(list, func(file string) bool {
		info, err := os.Stat(file)
		return err != nil || !info.Mode().IsRegular()
	})
	slices.Sort(list)
	return slices.Compact(list)
}

// literal reports whether the configuration file itself contains a secret. If not, others may
// read the file, as with a ConfigMap.
func (c Case) literal() bool {
	list, err := config.SecretsIn(c.File)
	return err != nil || slices.ContainsFunc(list, config.Written.Literal)
}

// Exposed returns the mode of a file and whether others can read or write it. A closed data
// directory protects the files in it. If another user owns the file and it belongs to our group,
// that group may read it: Kubernetes mounts secrets in this way.
func Exposed(file, home string) (fs.FileMode, bool) {
	info, err := os.Stat(file)
	if err != nil || !modes {
		return 0, false
	}
	others := fs.FileMode(0o077)
	// The group of such a file may read it, and nothing else.
	if owner, group, ok := OwnerOf(info); ok && owner != os.Geteuid() && group == os.Getegid() {
		others = 0o037
	}
	if info.Mode().Perm()&others == 0 {
		return 0, false
	}
	dir, err := os.Stat(home)
	if err == nil && config.Within(file, home) && dir.Mode().Perm()&0o077 == 0 {
		return info.Mode().Perm(), false
	}
	return info.Mode().Perm(), true
}

// examineStore checks the database.
func (c Case) examineStore(ctx context.Context) []Finding {
	about := subject{"store", "Database"}
	path := c.Config.Store.Path()
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return about.note("does not exist yet")
	}
	if err != nil {
		return about.bad(err.Error(), "Give this user access to it.")
	}
	db, err := store.Open(ctx, path, c.Migrations, &store.Options{Shared: true})
	switch {
	case errors.Is(err, store.ErrNewer):
		return about.bad("written by a newer gateway",
			"Upgrade this one, or restore a backup of its time.")
	// Package store has no error value for this case.
	case err != nil && strings.Contains(err.Error(), "older gateway"):
		return about.note("written by an older gateway; the next start brings it up to date")
	case err != nil:
		return about.storeError(c.Config.Store.Path(), err)
	}
	defer db.Close()
	size := info.Size()
	if wal, err := os.Stat(path + "-wal"); err == nil {
		size += wal.Size()
	}
	list := about.ok(fmt.Sprintf("%s, %.1f MB", path, float64(size)/(1<<20)))
	// An error means that this user may only read. The checks that follow report all others.
	if held, err := db.Held(ctx); err == nil && held > store.MaxHeld {
		list = append(list, subject{"store.log", "Database"}.bad(
			fmt.Sprintf("a program has been reading it for long, so %d MB stay in its write-ahead log",
				held>>20),
			"End that program, unless it is a backup. On Linux, fuser "+path+" finds it.")...)
	}
	list = append(list, c.examineIntegrity(ctx, db)...)
	list = append(list, c.examineProcess(ctx, db)...)
	return append(list, examineWork(db.Read(ctx), c.Config.Gateway.Location)...)
}

// storeError returns the finding for an error of the database, with a remedy. It recommends a
// restore only for a damaged database. If the disk is full, for example, a restore would lose
// messages.
func (s subject) storeError(path string, err error) []Finding {
	text := err.Error()
	switch {
	case store.IsFull(err):
		return s.bad("the disk is full, so the database can't be checked",
			"Free some space on the disk that holds "+path+", and run gateway doctor again. Nothing was "+
				"lost.")
	case strings.Contains(text, "malformed"), strings.Contains(text, "not a database"):
		return s.bad(text,
			"Stop the gateway, keep a copy of the files, and restore a backup: gateway restore FILE")
	case errors.Is(err, fs.ErrPermission), strings.Contains(text, "readonly"),
		strings.Contains(text, "unable to open"):
		return s.bad(text, "Let this user read and write "+path+" and its folder, and mount the "+
			"disk writable.")
	}
	return s.bad(text, "Run gateway doctor again. If this stays, look at the log of the gateway "+
		"and at the disk (dmesg) before you change anything.")
}

// examineIntegrity checks the whole database, for at most ten seconds.
func (c Case) examineIntegrity(ctx context.Context, db *store.DB) []Finding {
	about := subject{"store.integrity", "Database"}
	limited, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	var answer string
	err := db.Read(limited).QueryRow("PRAGMA quick_check(1)").Scan(&answer)
	switch {
	case limited.Err() != nil:
		return about.note("too large to be checked as a whole in " + storeTime.String())
	case err != nil || answer != "ok":
		// Damage can be the result of the check, or the reason why it fails.
		if err != nil && !strings.Contains(err.Error(), "malformed") {
			return about.storeError(c.Config.Store.Path(), err)
		}
		if err != nil {
			answer = err.Error()
		}
		return about.bad("damaged: "+answer,
			"Stop the gateway, keep a copy of the files, and restore a backup: gateway restore FILE")
	}
	return about.ok("undamaged")
}

// staleBackup is the age from which the last backup is too old.
const staleBackup = 7 * 24 * time.Hour

// examineBackup reports the age of the last backup. A home without a backup is not a problem: its
// operator may back it up in another way.
func (c Case) examineBackup(context.Context) []Finding {
	about := subject{"backup", "Backup"}
	at, err := c.LastBackup()
	switch {
	case err != nil:
		return about.bad(err.Error(), "Make a new one: gateway backup FILE")
	case at.IsZero():
		return about.note("none yet; make one with gateway backup FILE")
	}
	text := "the last one was made " +
		at.In(c.Config.Gateway.Location).Format("2006-01-02 15:04 MST")
	if c.Now().Sub(at) > staleBackup {
		return about.bad(text,
			"Make one with gateway backup FILE, and find out why the regular backup no longer runs.")
	}
	return about.ok(text)
}

// examineProcess reports whether a gateway is running. Only Linux names the process that holds the
// lock. On other systems the lease tells that a gateway runs.
func (c Case) examineProcess(ctx context.Context, db *store.DB) []Finding {
	about := subject{"store.owner", "Gateway"}
	running, err := store.LeaseHeld(db.Read(ctx), "dispatcher", c.Now())
	if err != nil {
		return about.storeError(c.Config.Store.Path(), err)
	}
	pid := lockHolder(c.Config.Store.Path() + ".lock")
	switch {
	case pid > 0:
		return about.ok(fmt.Sprintf("process %d has the database", pid))
	case running:
		return about.ok("running")
	}
	return about.note("not running")
}

// examineWork looks for undelivered messages and for the emergency stop. It ignores errors of the
// database, because examineStore reports them.
func examineWork(q store.Queryer, zone *time.Location) []Finding {
	var list []Finding
	if n, err := bus.DeadLetters(q); err == nil && n > 0 {
		list = subject{"store.outbox", "Outbox"}.bad(fmt.Sprintf("messages not delivered: %d", n),
			"gateway outbox list shows why; then use gateway outbox retry or drop.")
	}
	if halt, err := policy.GetHalt(q); err == nil && halt != nil {
		list = append(list, subject{"halt", "Emergency stop"}.bad("everything is paused since "+
			halt.Since.In(zone).Format("2006-01-02 15:04 MST")+", by "+halt.By,
			"To continue: gateway resume")...)
	}
	return list
}

// lockHolder returns the id of the process that holds the lock of a file. It returns 0 if there
// is none or the id is unknown.
func lockHolder(file string) int {
	inode, ok := inodeOf(file)
	if !ok {
		return 0
	}
	f, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		// 1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF
		fields := strings.Fields(in.Text())
		if len(fields) < 6 || fields[1] != "FLOCK" {
			continue
		}
		if strings.HasSuffix(fields[5], ":"+strconv.FormatUint(inode, 10)) {
			pid, err := strconv.Atoi(fields[4])
			if err == nil && pid > 0 {
				return pid
			}
		}
	}
	return 0
}

// clockSlack is the largest accepted difference between two clocks.
const clockSlack = time.Minute

const setClock = "Set the clock, best by NTP: timedatectl set-ntp true"

// newestTimes read the times of the newest rows, without reading all rows.
var newestTimes = []string{
	"SELECT created_ms FROM messages ORDER BY id DESC LIMIT 1",
	"SELECT received_ms FROM inbox ORDER BY id DESC LIMIT 1",
}

// examineClock compares the clock with the times of the newest rows in the database.
func (c Case) examineClock(ctx context.Context) []Finding {
	about := subject{"clock", "Clock"}
	now := c.Now()
	text := now.In(c.Config.Gateway.Location).Format("2006-01-02 15:04 MST")
	db, err := store.Open(ctx, c.Config.Store.Path(), c.Migrations, &store.Options{Shared: true})
	if err != nil { // examineStore reports this error
		return about.ok(text)
	}
	defer db.Close()
	var newest int64
	for _, query := range newestTimes {
		var ms int64
		if err := db.Read(ctx).QueryRow(query).Scan(&ms); err == nil {
			newest = max(newest, ms)
		}
	}
	// A row can't come from the future: either this clock is behind, or it was ahead when the row
	// was written.
	if ahead := time.UnixMilli(newest).Sub(now); ahead > clockSlack {
		return about.bad(fmt.Sprintf("%s; the newest message in the database is from %s later", text,
			ahead.Truncate(time.Second)), setClock)
	}
	return about.ok(text)
}
