package setup

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"gateway/channels/telegram"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/display"
	"gateway/cmd/gateway/internal/doctor"
)

// A platform is a chat platform on which the gateway is a bot with a token.
type platform struct {
	kind     string // type of the accounts
	title    string
	where    string // says where to get a token
	variable string // environment variable that may have a token
}

var platforms = []platform{
	{"telegram", "Telegram", "@BotFather makes bots: send it /newbot", "TELEGRAM_BOT_TOKEN"},
	{"discord", "Discord", "https://discord.com/developers/applications makes bots: New " +
		"Application, Bot, Reset Token", "DISCORD_BOT_TOKEN"},
}

// A botSetup is an account of a platform that is being set up.
type botSetup struct {
	*wizard
	platform
	name    string         // of the account
	known   bool           // the account existed before
	account config.Channel // zero if it did not exist
	who     doctor.Identity
}

// askBots asks for one account on each platform.
func (w *wizard) askBots(ctx context.Context) error {
	for _, p := range platforms {
		b := &botSetup{wizard: w, platform: p}
		b.name, b.known = w.account(p.kind)
		b.account = w.cfg.Channels[b.name]
		// An account that does not exist has no type yet.
		b.account.Type = p.kind
		if err := b.askAll(ctx); err != nil {
			return err
		}
	}
	return nil
}

// account returns the account to set up: the only account of a kind in the file, or else the
// account whose name is the kind. known reports whether the file has it.
func (w *wizard) account(kind string) (name string, known bool) {
	var names []string
	for name, c := range config.Sorted(w.cfg.Channels) {
		if c.Type == kind && w.before.has("channels", name) {
			names = append(names, name)
		}
	}
	if len(names) == 1 {
		return names[0], true
	}
	return kind, slices.Contains(names, kind)
}

// state describes an account that exists.
func state(name string, c config.Channel) string {
	text := "There is [channels." + name + "]"
	if len(c.Owners) > 0 {
		text += ", whose owners are " + strings.Join(c.Owners, ", ")
	}
	if !c.Enabled {
		text += ", which is disabled"
	}
	return text + "."
}

// askAll asks for the token of the bot, and for its owner.
func (b *botSetup) askAll(ctx context.Context) error {
	tokenFlag, ownerFlag := b.kind+"-token", b.kind+"-owner"
	if b.isSkipped(tokenFlag, ownerFlag) {
		return nil
	}
	b.printf("\n%s", b.title)
	if b.known {
		change, err := b.changes(ctx, state(b.name, b.account), tokenFlag, ownerFlag)
		if err != nil || !change {
			return err
		}
	}
	// Without a token there is no new account.
	token, err := b.askToken(ctx)
	if err == nil && token == "" && !b.known && b.answered(ownerFlag) {
		return app.UsageErrorf("there is no account on %s yet: give --%s, too", b.title, tokenFlag)
	}
	if err != nil || token == "" && !b.known {
		return err
	}
	if token != "" {
		b.setSecret(token, b.name+".token", "channels", b.name, "token")
		b.account.Token = secret(token)
	}
	if b.known && !b.account.Enabled {
		b.set(true, "channels", b.name, "enabled")
	}
	return b.askOwner(ctx)
}

// askToken asks for the token of the bot and tries it. It returns "" if the account keeps its
// token, or if the person wants no bot.
func (b *botSetup) askToken(ctx context.Context) (string, error) {
	q := question{flag: b.kind + "-token", hidden: true,
		text: "Token of the bot, hidden while you type"}
	present := b.account.Token.Reveal()
	switch {
	// Only the owner changes. The token is tried all the same, because its answer can name the
	// owner.
	case b.known && b.answered(b.kind+"-owner") && !b.answered(q.flag):
		b.try(ctx, b.account.Token)
		return "", nil
	case b.known && (present != "" || os.Getenv(b.variable) == ""):
		q.text += " (Enter: keep it)"
	case os.Getenv(b.variable) != "":
		q.text += " (Enter: the one in " + b.variable + ")"
		q.fallback = strings.TrimSpace(os.Getenv(b.variable))
	default:
		q.text += " (Enter: no " + b.title + ")"
		if !b.quiet {
			b.printf("%s.", b.where)
		}
	}
	for {
		token, err := b.ask(ctx, q)
		// There is no token to try.
		if err != nil || token == "" && (!b.known || present == "") {
			return "", err
		}
		tried := b.account.Token
		if token != "" {
			tried = secret(token)
		}
		for again := true; again; {
			problem := b.try(ctx, tried)
			if problem == "" {
				return token, nil
			}
			if b.quiet {
				return "", fmt.Errorf("%s: %s", b.title, problem)
			}
			b.printf("%s.", capitalize(problem))
			// The same token would be refused again, so Enter must not choose it.
			if b.who.Refused {
				q.fallback = ""
				break
			}
			again, err = b.confirm(ctx, tryAgain, true)
			if err != nil || !again {
				return token, err
			}
		}
	}
}

// tryAgain is the question after a test that failed although the answer may be right.
const tryAgain = "Try it again? If not, your answer is kept without a test."

// try asks the platform which bot the token belongs to, and sets b.who. It returns the problem as a
// text, or "".
func (b *botSetup) try(ctx context.Context, token config.Secret) (problem string) {
	c := b.account
	// The warnings below must be about the token alone.
	c.Enabled, c.Token, c.Owners, c.Allow, c.Groups = true, token, nil, nil, nil
	cfg := &config.Config{Channels: map[string]config.Channel{b.name: c}}
	b.who = doctor.Identity{}
	if doubts := cfg.Warnings(); doubts != nil {
		b.who.Refused = true
		return strings.TrimPrefix(doubts.Error(), "channels."+b.name+".token: ")
	}
	if b.offline {
		return ""
	}
	b.printf("Trying the token …")
	var findings []doctor.Finding
	b.who, findings = app.TryChannel(ctx, cfg, b.name)
	if b.who.Name != "" {
		b.printf("The bot is %s.", display.OneLine(b.who.Name))
	}
	for _, f := range findings {
		// Privacy mode does not keep the bot from working, and the doctor reports it.
		if f.State != doctor.Bad || f.ID == "channel."+b.name+".privacy" {
			continue
		}
		problem = display.Lines(f.Text)
		switch {
		case b.who.Name != "":
			return "it " + problem + ". " + strings.TrimSuffix(f.Remedy, ".")
		case !b.who.Refused: // otherwise the text begins with the name
			problem = b.title + " " + problem
		}
		return problem
	}
	return ""
}

// Words that answer the question for the owner.
const (
	ownerWaits = "wait"
	ownerLater = "later"
)

// awaitOwner is how long the command waits for a message of the owner.
const awaitOwner = 10 * time.Minute

// askOwner asks for the id of the account's owner, and adds it.
func (b *botSetup) askOwner(ctx context.Context) error {
	owners := b.account.Owners
	q := question{flag: b.kind + "-owner", fallback: ownerLater}
	// Only Telegram has links that send a code to a bot. A running gateway would receive the code
	// itself.
	waits := b.kind == "telegram" && b.who.Name != "" && !b.Running(ctx, b.cfg)
	switch {
	case len(owners) > 0:
		q.text = "Id of a further owner (Enter: none)"
	case b.quiet:
	case waits:
		q.fallback = ownerWaits
		q.text = fmt.Sprintf("Who is the owner? An id, %q to find it with a message to the bot, or "+
			"%q [%s]", ownerWaits, ownerLater, ownerWaits)
	case b.who.Owner != "":
		q.fallback = b.who.Owner
		q.text = fmt.Sprintf("Who is the owner? An id (that of %s, who owns the bot, is %s), or "+
			"%q [%[2]s]", display.OneLine(b.who.OwnerName), b.who.Owner, ownerLater)
	default:
		q.text = fmt.Sprintf("Who is the owner? An id, or %q [%[1]s]", ownerLater)
	}
	for {
		id, err := b.ask(ctx, q)
		if err != nil {
			return err
		}
		if id == ownerWaits && waits {
			if id, err = b.awaitOwner(ctx); err != nil {
				return err
			}
			if id == "" {
				continue
			}
		}
		if id == ownerLater {
			if len(owners) == 0 {
				b.later = append(b.later, b.name)
			}
			return nil
		}
		if err = b.addOwner(b.name, b.account, id); err == nil {
			return nil
		}
		if b.quiet {
			return app.UsageErrorf("--%s: %w", q.flag, err)
		}
		b.printf("%s.", capitalize(err.Error()))
	}
}

// addOwner adds an owner to an account. It returns an error if id is not an id of the platform. The
// warnings of a configuration with only this account tell that.
func (w *wizard) addOwner(name string, c config.Channel, id string) error {
	cfg := &config.Config{Channels: map[string]config.Channel{
		name: {Type: c.Type, Enabled: true, Owners: []string{id}}}}
	if warnings := cfg.Warnings(); warnings != nil {
		return errors.New(strings.TrimPrefix(warnings.Error(), "channels."+name+".owners: "))
	}
	if !slices.Contains(c.Owners, id) {
		path := []string{"channels", name, "owners"}
		w.edited(path)(w.text.add(id, path...))
	}
	return nil
}

// awaitOwner waits until somebody sends the bot a code. It returns their id, or "" if the person
// must be asked again. The code is random, so that no stranger who writes to the bot meanwhile
// becomes the owner.
func (b *botSetup) awaitOwner(ctx context.Context) (string, error) {
	// The new token is in b.account, not in the configuration at the start.
	cfg := *b.cfg
	cfg.Channels = map[string]config.Channel{b.name: b.account}
	account, ok := app.NewChannel(&cfg, b.name, slog.New(slog.DiscardHandler)).(*telegram.Channel)
	if !ok {
		return "", fmt.Errorf("[channels.%s] is not on Telegram", b.name)
	}
	code := rand.Text()[:8]
	b.printf("Open https://t.me/%s?start=%s and press Start, or send the bot %[2]s.", b.who.Name, code)
	if b.terminal {
		b.printf("Waiting for that. Enter ends it.")
	}
	limited, cancel := context.WithTimeout(ctx, awaitOwner)
	defer cancel()
	var id, name string
	ended, err := b.cancelOnEnter(limited, func(ctx context.Context) (err error) {
		id, name, err = telegram.AwaitSender(ctx, account, code)
		return err
	})
	// limited also ends with ctx, so the order of these cases matters.
	switch {
	case ctx.Err() != nil:
		return "", errStopped
	case ended:
		return "", nil
	case limited.Err() != nil:
		b.printf("Nobody has sent it.")
		return "", nil
	case err != nil:
		b.printf("%s.", capitalize(display.Lines(err.Error())))
		return "", nil
	}
	yes, err := b.confirm(ctx, fmt.Sprintf("%s has sent it (id %s). Is that the owner?",
		cmp.Or(display.OneLine(name), "Somebody"), id), true)
	if err != nil || !yes {
		return "", err
	}
	return id, nil
}

// cancelOnEnter calls f. On a terminal, Enter cancels it; entered then is true.
func (a *asker) cancelOnEnter(
	ctx context.Context, f func(context.Context) error,
) (entered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	if !a.terminal {
		return false, <-done
	}
	if a.reading == nil {
		c := make(chan line, 1)
		a.reading = c
		go func() { c <- a.next(false) }()
	}
	select {
	case err := <-done:
		return false, err // the line answers the next question
	case <-a.reading:
		a.reading = nil
		cancel()
		<-done
		return true, nil
	}
}

// whatsappFlag answers the question for the owner on WhatsApp.
const whatsappFlag = "whatsapp-owner"

// askWhatsApp asks whether to connect an account, for its owner, and how to link it.
func (w *wizard) askWhatsApp(ctx context.Context) error {
	if w.isSkipped(whatsappFlag) {
		return nil
	}
	w.printf("\nWhatsApp")
	name, known := w.account("whatsapp")
	c := w.cfg.Channels[name]
	wanted, err := true, error(nil)
	if known {
		wanted, err = w.changes(ctx, state(name, c), whatsappFlag)
	} else if !w.answered(whatsappFlag) {
		wanted, err = w.confirm(ctx, "The gateway becomes a linked device of an account, and can read "+
			"and write\neverything there. Read docs/getting-started-whatsapp.md first. "+
			"Connect it?", false)
	}
	if err == nil && wanted {
		wanted, err = w.askNumber(ctx, name, known, c)
	}
	// An account with a file of keys was linked before.
	if err != nil || !wanted && !known || exists(app.WhatsAppStore(w.cfg, name)) {
		return err
	}
	return w.askLink(ctx, name)
}

// askNumber asks for the number of the owner. It returns false if the person wants no account.
func (w *wizard) askNumber(
	ctx context.Context, name string, known bool, c config.Channel,
) (bool, error) {
	q := question{flag: whatsappFlag,
		text: "Your number with the country's code, such as +4915112345678 (Enter: skip this)"}
	c.Type = "whatsapp"
	wanted := false
	err := w.askUntil(ctx, q, func(number string) error {
		if wanted = number != ""; !wanted {
			return nil
		}
		// People separate the digits in these ways.
		number = strings.NewReplacer(" ", "", "-", "", "(", "", ")", "", "/", "").Replace(number)
		return w.addOwner(name, c, number)
	})
	if err != nil || !wanted {
		return false, err
	}
	if known && !c.Enabled {
		w.set(true, "channels", name, "enabled")
	}
	if !known {
		// By default, the gateway answers strangers with a code. On the number of a person, that
		// would be everybody who writes to them.
		w.set("allow", "channels", name, "access")
	}
	return true, nil
}

// askLink asks how an account is linked with its phone.
func (w *wizard) askLink(ctx context.Context, name string) error {
	const qr, none = "qr", "later"
	if w.machine != nil { // the file with the account's keys must belong to the service
		w.unlinked = append(w.unlinked, name)
		return nil
	}
	answer, err := w.ask(ctx, question{fallback: qr, text: "Link the account at the end: with a QR " +
		"code (Enter), with a code to\ntype into the phone (the account's own number), or \"" + none +
		"\""})
	switch {
	case err != nil:
		return err
	case answer == none:
		w.unlinked = append(w.unlinked, name)
	case answer == qr:
		w.pair = append(w.pair, link{name, ""})
	default:
		w.pair = append(w.pair, link{name, answer})
	}
	return nil
}

// askZone asks for the time zone of the gateway.
func (w *wizard) askZone(ctx context.Context) error {
	const flag = "timezone"
	if w.isSkipped(flag) {
		return nil
	}
	zone := w.cfg.Gateway.Timezone
	w.printf("\nTime")
	q := question{flag: flag, fallback: zone, text: fmt.Sprintf("Time zone, such as Europe/Berlin "+
		"(Enter: %s, where it is %s)", zone, time.Now().In(w.cfg.Gateway.Location).Format("15:04"))}
	return w.askUntil(ctx, q, func(answer string) error {
		if _, err := time.LoadLocation(answer); err != nil {
			return fmt.Errorf("there is no time zone %q", answer)
		}
		if answer != zone {
			w.set(answer, "gateway", "timezone")
		}
		return nil
	})
}

// exists reports whether a file exists. If the system can't say, it returns true.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil || !os.IsNotExist(err)
}
