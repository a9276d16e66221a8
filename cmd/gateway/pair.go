package main

import (
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"rsc.io/qr"

	"gateway/channels"
	"gateway/cmd/gateway/internal/config"
)

func pairCommand(load loader) *cobra.Command {
	var phone, file string
	cmd := &cobra.Command{
		Use:   "pair ACCOUNT",
		Short: "Link an account with a phone: WhatsApp",
		Long: "pair links a WhatsApp account. On the phone, open WhatsApp, then Linked devices, then\n" +
			"Link a device, and scan the code that is shown here. With --phone a code to type in is\n" +
			"shown instead. A running gateway takes the account up by itself.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := load()
			if err != nil {
				return err
			}
			p, err := pairer(cfg, args[0])
			if err != nil {
				return usageError{err}
			}
			if err := os.MkdirAll(cfg.Gateway.Home, 0o700); err != nil {
				return &homeError{cfg.Gateway.Home, err}
			}
			return pair(cmd.Context(), p, cmd.OutOrStdout(), phone, file)
		},
	}
	cmd.Flags().StringVar(&phone, "phone", "",
		"phone number with the country's code: show a code to type in instead of a QR code")
	cmd.Flags().StringVar(&file, "png", "", "also write the QR code into this file")
	return cmd
}

// pairer returns the channel of an account that is linked by a phone.
func pairer(cfg *config.Config, name string) (channels.Pairer, error) {
	c, ok := cfg.Channels[name]
	if !ok {
		return nil, fmt.Errorf("there is no account %q: add [channels.%s] to the configuration",
			name, name)
	}
	ch := newChannel(cfg, name, slog.New(slog.DiscardHandler))
	if p, ok := ch.(channels.Pairer); ok {
		return p, nil
	}
	return nil, fmt.Errorf("%s needs no pairing: write to the bot on %s, and let yourself in with "+
		"the code that it answers: gateway people approve CODE", name, c.Type)
}

func pair(ctx context.Context, p channels.Pairer, out io.Writer, phone, file string) error {
	var failed error
	err := p.Pair(ctx, digits(phone), func(c channels.PairingCode) {
		if err := show(out, c, file); err != nil && failed == nil {
			failed = err
		}
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, "The account is linked.")
	return err
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

// show shows a pairing code, which the next one replaces.
func show(out io.Writer, c channels.PairingCode, file string) error {
	until := c.Expires.Local().Format(time.TimeOnly)
	if c.Phone != "" {
		_, err := fmt.Fprintf(out, "Type this into the phone, until %s: %s\n", until, c.Phone)
		return err
	}
	code, err := qr.Encode(c.QR, qr.L)
	if err != nil {
		return fmt.Errorf("QR code: %w", err)
	}
	if file != "" {
		if err := writePNG(file, code); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out, "%s\nScan this with the phone, until %s.\n", blocks(code), until)
	return err
}

const quietZone = 2 // modules around a QR code; four by the standard, but half of them do

// blocks returns a QR code as text, two modules a character: light ones are blocks, because
// terminals are mostly dark.
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

// writePNG writes a QR code as an image. Only its owner can read it: whoever scans it first has the
// account.
func writePNG(name string, code *qr.Code) error {
	const scale, border = 8, 4
	side := (code.Size + 2*border) * scale
	img := image.NewGray(image.Rect(0, 0, side, side))
	for y := range side {
		for x := range side {
			if !code.Black(x/scale-border, y/scale-border) {
				img.SetGray(x, y, color.Gray{Y: 255})
			}
		}
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(png.Encode(f, img), f.Close())
}
