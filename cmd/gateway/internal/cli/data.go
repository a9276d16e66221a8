package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/doctor"
	"gateway/cmd/gateway/internal/ops"
	"gateway/store"
)

// data is the gateway's data for a command. A running gateway may use the database at the same
// time.
type data struct {
	cfg *config.Config
	db  *store.DB
	q   store.Queryer // reads from db
}

// withData calls fn with the gateway's data. fn may read, and write in short transactions. If the
// tables are of another version than this program, the result is an error, because withData does
// not migrate them.
func withData(ctx context.Context, cfg *config.Config, fn func(data) error) error {
	db, err := store.Open(ctx, cfg.Store.Path(), app.Migrations(), &store.Options{Shared: true})
	if errors.Is(err, fs.ErrNotExist) {
		err = errNoData
	}
	if err != nil {
		return app.NewHomeError(cfg.Gateway.Home, err)
	}
	// fn must not keep the database: it is closed when fn returns.
	return errors.Join(fn(data{cfg, db, db.Read(ctx)}), db.Close())
}

// checkOwner returns an error if this process is root and the home belongs to another user, who
// could not read the files that root would write there. The owner of the home is the owner of the
// database, or of the folder if there is no database.
func checkOwner(cfg *config.Config) error {
	path := cfg.Store.Path()
	info, err := os.Stat(path)
	if err != nil {
		path = cfg.Gateway.Home
		info, err = os.Stat(path)
	}
	if err != nil {
		return nil // the command creates the home or reports the error
	}
	owner, _, ok := doctor.OwnerOf(info)
	if ok && owner != 0 && os.Geteuid() == 0 {
		return app.UsageErrorf("nothing was changed: %s belongs to user %d, who could not read files "+
			"of root; run this command as that user: sudo -u '#%d'", path, owner, owner)
	}
	return nil
}

// withConfig returns cmd with an action that gets the configuration.
func withConfig(
	load app.Loader, cmd *cobra.Command, run func(*cobra.Command, *config.Config, []string) error,
) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		return run(cmd, cfg, args)
	}
	return cmd
}

// dataCommand returns a command that uses the gateway's data.
func dataCommand(
	load app.Loader, use, short string, args cobra.PositionalArgs,
	run func(cmd *cobra.Command, d data, args []string) error,
) *cobra.Command {
	return withConfig(load, &cobra.Command{Use: use, Short: short, Args: args},
		func(cmd *cobra.Command, cfg *config.Config, args []string) error {
			return withData(cmd.Context(), cfg, func(d data) error { return run(cmd, d, args) })
		})
}

// inTx returns the action of a command that changes the database in one transaction and then
// prints what it did.
func inTx(do func(tx *store.Tx, d data, args []string) (done string, err error),
) func(*cobra.Command, data, []string) error {
	return func(cmd *cobra.Command, d data, args []string) error {
		var done string
		// The text claims a change, so it is printed only after the transaction was committed.
		err := d.db.Tx(cmd.Context(), func(tx *store.Tx) (err error) {
			done, err = do(tx, d, args)
			return err
		})
		if err == nil {
			cmd.Println(done)
		}
		return err
	}
}

// group returns a command that only has subcommands. Without a subcommand it prints its help, see
// checkWords.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short}
	cmd.AddCommand(commands...)
	return cmd
}

// Timeouts for responses of a running gateway.
const (
	answerTime = 15 * time.Second // for a busy machine
	doctorTime = time.Minute      // the doctor connects to other servers and reads the database
)

// maxAnswer is the most that is read of a response, in bytes.
const maxAnswer = 16 << 20

// A running is the gateway that runs in this home. Only that process knows the settings in force,
// because this shell may have other variables or another configuration file.
type running struct {
	endpoint ops.Endpoint
	process  app.Process
	settings *config.Config // without credentials
}

// findRunning returns the gateway that runs in a home. It returns nil, nil if none runs or if its
// server is disabled.
func findRunning(ctx context.Context, home string) (*running, error) {
	e, err := ops.ReadEndpoint(home)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &running{endpoint: e}
	err = r.ask(ctx, http.MethodGet, app.ProcessPath, answerTime, &r.process)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, nil // a killed gateway does not remove the file
	}
	if err == nil {
		r.settings, err = config.Shared(r.process.Settings)
	}
	if err != nil {
		return nil, fmt.Errorf("the gateway at %s does not answer: %w", e.Address, err)
	}
	return r, nil
}

// ask sends a request to the running gateway and decodes the response into into.
func (r *running) ask(
	ctx context.Context, method, path string, limit time.Duration, into any,
) error {
	code, body, err := request(ctx, r.endpoint, method, path, limit)
	switch {
	case err != nil:
		return err
	case code == http.StatusUnauthorized:
		return errors.New("another program has its address")
	case code != http.StatusOK:
		return fmt.Errorf("status %d: %s", code, strings.TrimSpace(string(body)))
	}
	return json.Unmarshal(body, into)
}

// request sends a request to a gateway and returns the status and the body.
func request(ctx context.Context, e ops.Endpoint, method, path string, limit time.Duration) (
	code int, body []byte, err error,
) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+e.Address+path, nil)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+e.Token)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // uses no proxy
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode, body, err
}

// String describes the process and the origin of its settings.
func (r *running) String() string {
	var from []string
	if r.settings.FileExists {
		from = append(from, r.settings.File)
	}
	from = append(from, r.process.Variables...)
	if from == nil {
		from = []string{"the defaults"}
	}
	return fmt.Sprintf("process %d, which runs since %s with the settings of %s", r.process.PID,
		r.process.Began.Local().Format(time.DateTime), strings.Join(from, ", "))
}

// lookForRunning returns the gateway that runs in the home of the configuration, or nil, and tells
// people whose settings a command reports on. about is "" if the home is not known. An error of
// found is not reported here, since the caller reports it in its own way.
func lookForRunning(ctx context.Context, found app.Loader) (r *running, about string) {
	cfg, err := found()
	if err != nil {
		return nil, ""
	}
	r, err = findRunning(ctx, cfg.Gateway.Home)
	return r, aboutSettings(r, err, cfg.Gateway.Home)
}

// aboutSettings tells people whose settings a command reports on.
func aboutSettings(r *running, err error, home string) string {
	switch {
	case r != nil:
		return "This is about the running gateway: " + r.String() + "."
	case err != nil:
		return fmt.Sprintf("This is about the settings of this shell, since %v.", err)
	}
	return fmt.Sprintf("This is about the settings of this shell: no gateway answers in %s.", home)
}

// preferRunning returns a loader that returns the settings of the gateway that runs in the home.
// If none answers, it returns those of read.
func preferRunning(ctx func() context.Context, read app.Loader) app.Loader {
	return sync.OnceValues(func() (*config.Config, error) {
		cfg, err := read()
		if err != nil {
			return nil, err
		}
		r, err := findRunning(ctx(), cfg.Gateway.Home)
		if err != nil {
			fmt.Fprintln(os.Stderr, aboutSettings(nil, err, cfg.Gateway.Home))
		}
		if r == nil {
			return cfg, nil
		}
		r.settings.CopyMistakes(cfg)
		return r.settings, nil
	})
}
