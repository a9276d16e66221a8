package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"gateway/cmd/gateway/internal/app"
	"gateway/store"
)

// errNoData reports a home in which no gateway has run yet.
var errNoData = errors.New("no data")

// plain returns what a person is told of an error that ends the gateway: what happened and what
// to do.
func plain(err error) string {
	home, ok := errors.AsType[*app.HomeError](err)
	if !ok {
		return err.Error()
	}
	const elsewhere = "or set GATEWAY_HOME to another folder"
	switch {
	case errors.Is(err, store.ErrLocked):
		return fmt.Sprintf("a gateway is running in %s already. Talk to it with \"gateway chat\", "+
			"stop it, %s.", home.Home, elsewhere)
	case errors.Is(err, errNoData):
		return fmt.Sprintf("there is no gateway's data in %s. Start the gateway once, %s.",
			home.Home, elsewhere)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS),
		errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("%s can't be written. Give its folder to this user, %s.",
			home.Home, elsewhere)
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrExist):
		return fmt.Sprintf("%s is no folder. Move what is there away, %s.", home.Home, elsewhere)
	case errors.Is(err, syscall.ENOSPC), strings.Contains(err.Error(), "disk is full"): // SQLite's
		return fmt.Sprintf("the disk of %s is full. Make room, %s.", home.Home, elsewhere)
	case errors.Is(err, store.ErrNewer):
		return fmt.Sprintf("the data in %s was written by a newer gateway. Upgrade this one, %s.",
			home.Home, elsewhere)
	}
	return err.Error()
}
