package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/display"
	"gateway/cmd/gateway/internal/ops"
)

func healthCommand(load app.Loader) *cobra.Command {
	var ready bool
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Say whether the running gateway is alive, or ready",
		Long: "health asks the gateway that runs in this home through its HTTP server. It prints the\n" +
			"problems. Its exit code is 0 if there are none: use it for the probes of containers.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load()
			if err != nil {
				return err
			}
			return examineHealth(cmd.Context(), cfg, ready, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&ready, "ready", false, "also check whether all parts work")
	return cmd
}

// examineHealth asks the running gateway whether it is alive or, with ready, whether it is ready.
func examineHealth(ctx context.Context, cfg *config.Config, ready bool, out io.Writer) error {
	e, err := ops.ReadEndpoint(cfg.Gateway.Home)
	if errors.Is(err, fs.ErrNotExist) && cfg.HTTP.Listen == "" {
		return errors.New("the gateway can't be asked: its server is switched off; set [http] listen")
	}
	if errors.Is(err, fs.ErrNotExist) && e.Address != "" {
		return fmt.Errorf("no gateway answers at %s: it was killed or has crashed; see its log, or "+
			"start it", e.Address)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no gateway runs in %s, or it can't listen on %s: see its log",
			cfg.Gateway.Home, cfg.HTTP.Listen)
	}
	if err != nil {
		return err
	}
	path := "/healthz"
	if ready {
		path = "/readyz"
	}
	code, body, err := request(ctx, e, http.MethodGet, path, answerTime)
	switch {
	case err != nil:
		return fmt.Errorf("no gateway answers at %s: %w; see its log, or start it", e.Address, err)
	case code == http.StatusUnauthorized:
		return fmt.Errorf("another program answers at %s, not the gateway in %s", e.Address,
			cfg.Gateway.Home)
	case !ready && code == http.StatusOK:
		fmt.Fprintln(out, "The gateway is alive.")
		return nil
	case !ready:
		return fmt.Errorf("the gateway answers with code %d", code)
	}
	return printReport(body, out)
}

// printReport prints the failed checks. It returns an error if there are any.
func printReport(body []byte, out io.Writer) error {
	var r ops.Report
	if err := json.Unmarshal(body, &r); err != nil {
		return fmt.Errorf("the gateway's answer is not valid: %w", err)
	}
	var failed []string
	for _, c := range r.Checks {
		if !c.OK {
			failed = append(failed, c.Name)
			state, remedy, _ := strings.Cut(c.State, ". ")
			fmt.Fprintf(out, "%s: %s (since %s)\n", c.Name, display.Lines(state),
				c.Since.Local().Format(time.TimeOnly))
			if remedy != "" {
				fmt.Fprintf(out, "    %s\n", display.Lines(remedy))
			}
		}
	}
	if !r.Ready {
		return fmt.Errorf("the gateway is not ready: see %s", strings.Join(failed, ", "))
	}
	fmt.Fprintln(out, "The gateway is ready.")
	return nil
}
