// The container command builds the image of the gateway as the Dockerfile says and tries it:
//
//	go run ./deploy/container
//
// With a Docker engine it uses that. Elsewhere it executes the Dockerfile's instructions, one after
// another, in a plain root file system that debootstrap makes, and runs the result with runc, with
// the restrictions that Docker has; that takes root, those two programs and the mirror that
// debootstrap uses. It says which of the two it did.
//
// The gateway then has a fake Telegram and a fake model, and nothing but the two variables that are
// documented and where those fakes are. It must get healthy, let somebody in, answer, have a
// sandbox that has proven itself, end at its signal, and go on with the same volume under the
// restrictions of compose.yml. It is run from the repository's root.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	var e engine
	if d := findDocker(ctx); d != nil {
		e = d
	} else if e, err = findPlain(); err != nil {
		return err
	}
	fmt.Println("Tried with:", e)
	defer func() { err = errors.Join(err, e.close()) }()
	began := time.Now()
	if err := e.build(ctx); err != nil {
		return err
	}
	fmt.Printf("The image is built after %.0f s.\n", time.Since(began).Seconds())
	if err := try(ctx, e); err != nil {
		return err
	}
	fmt.Printf("The container works, after %.0f s.\n", time.Since(began).Seconds())
	return nil
}
