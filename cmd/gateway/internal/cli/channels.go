package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"rsc.io/qr"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/supervisor"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/display"
	"gateway/cmd/gateway/internal/service"
	"gateway/cmd/gateway/internal/setup"
	"gateway/store"
)

// channelsCommand returns the command that shows the states of the accounts. A running gateway
// records them in the database, so the command needs only its settings.
func channelsCommand(found app.Loader) *cobra.Command {
	return withJSONFlag(withConfig(found, &cobra.Command{
		Use:   "channels",
		Short: "Show the state of each channel, its pending and failed messages, and what to do",
		Long: `Show the state of each account, and how many messages wait or could not be delivered.

If a gateway runs in this home, the command shows its accounts. Otherwise it shows the accounts in
the settings of this shell.`,
		Args: cobra.NoArgs,
	}, func(cmd *cobra.Command, cfg *config.Config, _ []string) error {
		r, trouble := findRunning(cmd.Context(), cfg.Gateway.Home)
		// The settings of a running gateway have no mistakes. Those of this shell are all there is
		// otherwise, and with mistakes they may lack an account.
		if r == nil && cfg.Mistakes() != nil {
			return app.NewUsageError(cfg.Mistakes())
		}
		cmd.PrintErrln(aboutSettings(r, trouble, cfg.Gateway.Home))
		if r != nil {
			cfg = r.settings
		}
		return withData(cmd.Context(), cfg, func(d data) error {
			rows, err := ChannelRows(cfg, d.q)
			if err != nil {
				return err
			}
			return printChannels(cmd, rows)
		})
	}))
}

// printChannels prints a table of the accounts. For people it also prints what to do.
func printChannels(cmd *cobra.Command, rows [][]any) error {
	var advice []string
	for _, row := range rows {
		state := fmt.Sprint(row[len(row)-1])
		// A state can have a second sentence, which says what to do. It is too long for a cell.
		if short, remedy, ok := strings.Cut(state, ". "); ok && !wantsJSON(cmd) {
			row[len(row)-1] = short
			advice = append(advice, fmt.Sprintf("%s: %s", row[0], display.Lines(remedy)))
		}
	}
	columns := []string{"ACCOUNT", "TYPE", "LAST MESSAGE", "TO SEND", "GIVEN UP", "SINCE", "STATE"}
	err := table{columns, rows, "No channel is configured."}.print(cmd)
	if err == nil && advice != nil {
		cmd.Println("\nWhat to do:\n" + strings.Join(advice, "\n"))
	}
	return err
}

// ChannelRows returns one row per account. A row has the columns that printChannels names. The
// recorded states are old if no gateway runs, so they are then left out. The last rows are for
// removed accounts that still have messages to send or messages that were given up.
func ChannelRows(cfg *config.Config, q store.Queryer) ([][]any, error) {
	states, statesErr := supervisor.States(q)
	open, openErr := bus.OpenByAccount(q)
	dead, deadErr := bus.DeadByAccount(q)
	running, err := store.LeaseHeld(q, "dispatcher", time.Now())
	if err = errors.Join(statesErr, openErr, deadErr, err); err != nil {
		return nil, err
	}
	var rows [][]any
	for name, c := range config.Sorted(cfg.Channels) {
		s, known := states[name]
		state, since := s.State, any(age(s.Since))
		switch {
		case !c.Enabled:
			state, since = "disabled in the configuration", ""
		case !running:
			state, since = "the gateway is not running: start it with gateway", ""
		case !known:
			state, since = "starting; if it stays so, restart the gateway: its configuration has changed", ""
		}
		rows = append(rows, []any{name, c.Type, event(s.Event), open[name], dead[name],
			since, state})
	}
	for name := range dead {
		open[name] += 0 // so that open has all accounts with messages
	}
	for name, n := range config.Sorted(open) {
		if _, ok := cfg.Channels[name]; !ok {
			rows = append(rows, []any{name, "?", event{}, n, dead[name], "",
				"not in the configuration: add it again, or see gateway outbox drop"})
		}
	}
	return rows, nil
}

// pairCommand returns the command that links a WhatsApp account. The keys go into a file of the
// account, so the command needs no database and no credentials.
func pairCommand(load app.Loader) *cobra.Command {
	var phone, file string
	cmd := withConfig(load, &cobra.Command{
		Use:   "pair ACCOUNT",
		Short: "Link a WhatsApp account with a phone",
		Long: `Link a WhatsApp account with a phone. The command shows a QR code. On the phone, open
WhatsApp, then Linked devices, then Link a device, and scan the code. With --phone the command shows
a code to type in instead. For many accounts WhatsApp also wants their passkey; then the command
says how to use it with a browser. A running gateway then connects the account by itself.`,
		Args: cobra.ExactArgs(1),
	}, func(cmd *cobra.Command, cfg *config.Config, args []string) error {
		// The other accounts may have secrets that this shell lacks.
		if err := cfg.Unresolved("channels", args[0]); err != nil {
			return app.NewUsageError(err)
		}
		p, err := Pairer(cfg, args[0])
		if err == nil {
			err = checkPhone(phone)
		}
		if err == nil {
			err = checkOwner(cfg)
		}
		if err != nil {
			return app.NewUsageError(err)
		}
		if err := os.MkdirAll(cfg.Gateway.Home, 0o700); err != nil {
			return app.NewHomeError(cfg.Gateway.Home, err)
		}
		return Pair(cmd.Context(), p, cmd.InOrStdin(), cmd.OutOrStdout(), phone, file)
	})
	cmd.Flags().StringVar(&phone, "phone", "",
		"phone number with the country's code: show a code to type in instead of a QR code")
	cmd.Flags().StringVar(&file, "png", "", "also write the QR code into this file")
	return cmd
}

// setupCommand connects package setup with the parts of the command line that it needs, so that it
// need not import them.
func setupCommand(found app.Loader) *cobra.Command {
	return setup.Command(setup.Options{
		Load: found, Machine: service.OfMachine,
		// Either of the two ways to find a gateway may be switched off in its configuration.
		Running: func(ctx context.Context, cfg *config.Config) bool {
			conn, err := dial(ctx, cfg)
			if err == nil && conn != nil {
				_ = conn.Close() // nothing was sent
				return true
			}
			r, _ := findRunning(ctx, cfg.Gateway.Home) // an error is that of another program
			return r != nil
		},
		Pair: func(
			ctx context.Context, cfg *config.Config, account, phone string, out io.Writer,
		) error {
			p, err := Pairer(cfg, account)
			if err == nil {
				err = checkPhone(phone)
			}
			if err != nil {
				return err
			}
			return Pair(ctx, p, os.Stdin, out, phone, "")
		},
	})
}

// Pairer returns the channel of an account that people link with their phone.
func Pairer(cfg *config.Config, name string) (channels.Pairer, error) {
	c, ok := cfg.Channels[name]
	if !ok {
		return nil, fmt.Errorf("there is no account %q: add [channels.%s] to the configuration",
			name, name)
	}
	// The channel does not connect before Run or Pair.
	ch := app.NewChannel(cfg, name, slog.New(slog.DiscardHandler))
	if p, ok := ch.(channels.Pairer); ok {
		return p, nil
	}
	if c.Type == "terminal" {
		return nil, errors.New("only WhatsApp accounts are paired; the terminal is always open")
	}
	return nil, fmt.Errorf("only WhatsApp accounts are paired: write to the bot of %s, and let "+
		"yourself in with the code that it answers: gateway people approve CODE", name)
}

// Pair links an account and prints the instructions for the person with the phone. phone is a
// number with the country's code, or "" for a QR code. If file is not "", each QR code is also
// written there, as a PNG image. WhatsApp replaces the code several times until one is used. The
// person's answers come from in, a line each.
func Pair(
	ctx context.Context, p channels.Pairer, in io.Reader, out io.Writer, phone, file string,
) error {
	if hint := trunkZero(phone); hint != "" {
		if _, err := fmt.Fprintln(out, hint); err != nil {
			return err
		}
	}
	// show can't end the pairing, and somebody may still use a code that was shown. So the first
	// error of show is reported at the end.
	var failed error
	answers := &answerer{lines: bufio.NewScanner(in), out: out}
	err := p.Pair(ctx, digits(phone), func(c channels.PairingCode) {
		err := show(out, c, file)
		if c.Answer != nil {
			go answers.read(c.Answer)
		}
		if err != nil && failed == nil {
			failed = err
		}
	})
	// The phone may have accepted the code just before the command was stopped.
	if err != nil && ctx.Err() != nil {
		return errors.New("linking was stopped: gateway channels says whether the account is linked")
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Errorf("WhatsApp can't be reached: %s was not found. Is this machine online?",
			dns.Name)
	}
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, "The account is linked.")
	return err
}

// checkPhone returns an error for an invalid phone number; "" means a QR code.
func checkPhone(phone string) error {
	const want = "want the number of the account with its country's code, such as +4915112345678"
	switch {
	case phone == "":
		return nil
	case strings.Trim(phone, "+0123456789 -()/.") != "" || digits(phone) == "":
		return fmt.Errorf("%q is not a phone number: %s", phone, want)
	case strings.Contains(phone, "(0)"):
		return fmt.Errorf("%q has a zero that is not dialled from abroad: %s", phone, want)
	}
	return nil
}

// trunkZero returns a warning if the country code in a phone number is followed by a zero, else
// "". Most countries use this zero only for domestic calls. Only WhatsApp knows whether a number
// is right, and it also gives out codes for wrong numbers.
func trunkZero(phone string) string {
	number := digits(phone)
	code := countryCode(number)
	if code == "" || !strings.HasPrefix(number[len(code):], "0") {
		return ""
	}
	switch code {
	case "39", "225", "242", "378": // Italy, Ivory Coast, Congo, San Marino keep it
		return ""
	}
	return fmt.Sprintf("%s has a zero after the country's code, %s. It must usually be left out: if "+
		"the phone does not accept the code, repeat this with --phone +%s.", phone, code,
		code+strings.TrimLeft(number[len(code):], "0"))
}

// countryCode returns the country code at the beginning of a number, or "". By ITU E.164, codes
// have one digit in two of the nine world zones, else two or three.
func countryCode(number string) string {
	if len(number) < 3 || number[0] == '0' {
		return ""
	}
	switch number[:2] {
	case "20", "27", "30", "31", "32", "33", "34", "36", "39", "40", "41", "43", "44", "45", "46",
		"47", "48", "49", "51", "52", "53", "54", "55", "56", "57", "58", "60", "61", "62", "63",
		"64", "65", "66", "81", "82", "84", "86", "90", "91", "92", "93", "94", "95", "98":
		return number[:2]
	}
	if number[0] == '1' || number[0] == '7' {
		return number[:1]
	}
	return number[:3]
}

// digits returns the digits of a phone number.
func digits(s string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return r
		}
		return -1
	}, s)
}

// show prints a pairing code, or writes it into a file. It replaces an earlier code.
func show(out io.Writer, c channels.PairingCode, file string) error {
	until := c.Expires.Local().Format(time.TimeOnly)
	switch {
	case c.Phone != "":
		_, err := fmt.Fprintf(out, "Type this into the phone, until %s: %s\n", until, c.Phone)
		return err
	case c.Challenge != "":
		_, err := fmt.Fprintf(out, passkeyText, until, fmt.Sprintf(passkeyLine, c.Challenge))
		return err
	case c.Compare != "":
		_, err := fmt.Fprintf(out, "If the phone shows the code %s, press Enter here, until %s. "+
			"Otherwise press Ctrl-C.\n", c.Compare, until)
		return err
	}
	// The lowest level of error correction gives the smallest code, which has to fit on a terminal.
	code, err := qr.Encode(c.QR, qr.L)
	if err != nil {
		return fmt.Errorf("QR code: %w", err)
	}
	if file != "" {
		// Only the owner may read the file, because the first one who scans the code gets the
		// account.
		if err := os.WriteFile(file, code.PNG(), 0o600); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out, "%s\nScan this with the phone, until %s.\n", blocks(code), until)
	return err
}

// passkeyText tells a person how to answer the challenge of a passkey. The arguments are the time
// and the line. Only on WhatsApp's own page does the browser offer the passkey.
const passkeyText = `
WhatsApp asks for the passkey of the account. You have until %s, and best do it within five minutes:

1. On a computer, open https://web.whatsapp.com in a browser. Do not log in there.
2. Press F12 and choose the console. If it does not let you paste, type: allow pasting
3. Paste this line there, press Enter, and confirm with the passkey. If it is on the phone, choose
   the phone and scan the code that the browser shows.

%s

4. Copy the answer, which begins with { and ends with }, paste it here, and press Enter. The link
   then takes up to a minute.
`

// passkeyLine is a line of JavaScript that prints the answer of a passkey to a challenge.
const passkeyLine = "navigator.credentials.get({publicKey:" +
	"PublicKeyCredential.parseRequestOptionsFromJSON(%s)}).then(c=>console.log(JSON.stringify(c)))"

// An answerer reads a person's answers.
type answerer struct {
	mu    sync.Mutex // held by the question that reads
	lines *bufio.Scanner
	out   io.Writer
}

// read reads lines until answer accepts one. The process may end first.
func (a *answerer) read(answer func(string) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.lines.Scan() {
		err := answer(a.lines.Text())
		if err == nil {
			return
		}
		_, _ = fmt.Fprintf(a.out, "%v. Paste it again:\n", err)
	}
	_, _ = fmt.Fprintln(a.out, "There is no input to read the answer from: run this in a terminal.")
}

const quietZone = 2 // modules around a QR code; the standard wants four, but two are enough

// blocks returns a QR code as text with two modules per character. Light modules are blocks,
// because most terminals have a dark background.
func blocks(code *qr.Code) string {
	var b strings.Builder
	for y := -quietZone; y < code.Size+quietZone; y += 2 {
		for x := -quietZone; x < code.Size+quietZone; x++ {
			upper, lower := !code.Black(x, y), !code.Black(x, y+1)
			switch {
			case upper && lower:
				b.WriteRune('█')
			case upper:
				b.WriteRune('▀')
			case lower:
				b.WriteRune('▄')
			default:
				b.WriteByte(' ')
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
