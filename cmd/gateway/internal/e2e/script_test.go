package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/telegram/telegramtest"
	"gateway/cmd/gateway/internal/app"
	"gateway/store"
)

// TestScript runs the scripts of testdata/script. In a script, "gateway" is the program of
// [buildBinary]. Each script has its own fake Telegram, at $TELEGRAM with the bot token $TOKEN, and
// its own fake model, at $MODEL, that follows all orders (see followOrders). $GATEWAY_HOME does not
// exist at the beginning. There are these commands in addition to those of package testscript:
//
//	say CHAT TEXT         a person writes to the bot; CHAT is also the person's id
//	hear CHAT REGEXP      waits until a message of the bot there matches; sets $1 to the first group
//	refuse CHAT [REASON]  Telegram refuses the bot's messages there; without REASON, it stops that
//	exitcode N PROGRAM…   runs a program that must end with the code N
//	calls METHOD N        waits until the method of the Bot API was called at least N times
//	file CHAT NAME        waits until the bot has sent a file with this name there
//	until REGEXP PROGRAM…  runs a program repeatedly until its output matches
//	wait_file PATH        waits until the file exists
//	wait_gone PATH TEXT   waits until the file does not contain the text
//	polling               waits until a gateway receives from Telegram
//	pass DURATION         makes the questions to people that much older, as if the time had passed
//	[root]                whether the tests run as root, who can open every folder
func TestScript(t *testing.T) {
	t.Parallel()
	scripts := concurrentTests{t: t}
	defer scripts.all.Wait()
	testscript.RunT(scriptRunner{t, &scripts}, testscript.Params{
		Dir:   "testdata/script",
		Setup: setUpScript,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exitcode": scriptExitCode, "say": scriptSay, "hear": scriptHear, "refuse": scriptRefuse,
			"file": scriptFile, "until": scriptUntil,
			"wait_file": scriptWaitFile, "wait_gone": scriptWaitGone,
			"polling": scriptPolling, "calls": scriptCalls, "pass": scriptPass,
		},
		Condition: func(cond string) (bool, error) { return cond == "root" && os.Geteuid() == 0, nil },
	})
}

// A scriptRunner runs the scripts with concurrentTests.
type scriptRunner struct {
	*testing.T
	scripts *concurrentTests
}

func (r scriptRunner) Run(name string, script func(testscript.T)) {
	r.scripts.run(name, func(t *testing.T) { script(scriptRunner{t, r.scripts}) })
}

func (scriptRunner) Parallel() {}

func (scriptRunner) Verbose() bool { return testing.Verbose() }

// telegramKey is the key under which a script stores its Telegram.
type telegramKey struct{}

func setUpScript(env *testscript.Env) error {
	program, err := buildBinary()
	if err != nil {
		return err
	}
	telegram := telegramtest.New(testToken, nil)
	url, err := telegram.Start(context.Background())
	if err != nil {
		return err
	}
	env.Defer(telegram.Close)
	model := openaitest.Start(followOrders)
	env.Defer(model.Close)
	env.Values[telegramKey{}] = telegram
	home := env.WorkDir + "/home"
	env.Vars = append(append(env.Vars, thrifty()...), "HOME="+home, "GATEWAY_HOME="+home,
		"PATH="+filepath.Dir(program)+string(os.PathListSeparator)+os.Getenv("PATH"),
		"GATEWAY_HTTP__LISTEN=", "GATEWAY_EXEC__SANDBOX=off", "TELEGRAM="+url,
		"TOKEN="+testToken, "MODEL="+model.URL)
	return nil
}

func telegramOf(ts *testscript.TestScript) *telegramtest.Server {
	return ts.Value(telegramKey{}).(*telegramtest.Server)
}

// firstNumber returns the first argument as a number, such as a chat. The script fails if it has
// fewer than n arguments.
func firstNumber(ts *testscript.TestScript, neg bool, args []string, n int) int64 {
	if neg || len(args) < n {
		ts.Fatalf("see the comment of TestScript")
	}
	number, err := strconv.ParseInt(args[0], 10, 64)
	ts.Check(err)
	return number
}

func scriptExitCode(ts *testscript.TestScript, neg bool, args []string) {
	want := firstNumber(ts, neg, args, 2)
	code := 0
	err := ts.Exec(args[1], args[2:]...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if int64(code) != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

func scriptSay(ts *testscript.TestScript, neg bool, args []string) {
	chat := firstNumber(ts, neg, args, 2)
	telegramOf(ts).Say(chat, chat, strings.Join(args[1:], " "))
}

func scriptRefuse(ts *testscript.TestScript, neg bool, args []string) {
	chat := firstNumber(ts, neg, args, 1)
	telegramOf(ts).AddUser(telegramtest.User{ID: chat, First: "Anna"})
	telegramOf(ts).Refuse(chat, strings.Join(args[1:], " "))
}

func scriptHear(ts *testscript.TestScript, neg bool, args []string) {
	chat := firstNumber(ts, neg, args, 2)
	pattern, err := regexp.Compile(strings.Join(args[1:], " "))
	ts.Check(err)
	var match []string
	scriptWait(ts, func() bool {
		for _, m := range telegramOf(ts).History(chat) {
			if match = pattern.FindStringSubmatch(m.Text); match != nil {
				return true
			}
		}
		return false
	})
	if len(match) > 1 {
		ts.Setenv("1", match[1])
	}
}

func scriptPolling(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("see the comment of TestScript")
	}
	scriptWait(ts, telegramOf(ts).Polling)
}

func scriptPass(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("see the comment of TestScript")
	}
	d, err := time.ParseDuration(args[0])
	ts.Check(err)
	ctx := context.Background()
	path := filepath.Join(ts.Getenv("GATEWAY_HOME"), "gateway.db")
	db, err := store.Open(ctx, path, app.Migrations(), &store.Options{Shared: true})
	ts.Check(err)
	err = db.Tx(ctx, func(tx *store.Tx) error {
		n, err := tx.Exec("UPDATE questions SET expires_ms = expires_ms - $1 WHERE state = 'open'",
			d.Milliseconds())
		if err == nil && n == 0 {
			err = errors.New("no question waits")
		}
		return err
	})
	ts.Check(errors.Join(err, db.Close()))
}

func scriptWait(ts *testscript.TestScript, cond func() bool) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ts.Check(telegramOf(ts).Wait(ctx, cond))
}

func scriptCalls(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("see the comment of TestScript")
	}
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	scriptWait(ts, func() bool { return telegramOf(ts).Calls(args[0]) >= want })
}

func scriptFile(ts *testscript.TestScript, neg bool, args []string) {
	chat := firstNumber(ts, neg, args, 2)
	scriptWait(ts, func() bool {
		for _, m := range telegramOf(ts).History(chat) {
			if m.File != nil && m.File.Name == args[1] {
				return true
			}
		}
		return false
	})
}

func scriptUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("see the comment of TestScript")
	}
	pattern, err := regexp.Compile(args[0])
	ts.Check(err)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		err := ts.Exec(args[1], args[2:]...)
		if pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%q never printed %s: %v", args[1:], pattern, err)
		}
	}
}

func scriptWaitFile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("see the comment of TestScript")
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("there never was a file %s", args[0])
		}
	}
}

func scriptWaitGone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("see the comment of TestScript")
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		content, err := os.ReadFile(ts.MkAbs(args[0]))
		ts.Check(err)
		if !bytes.Contains(content, []byte(args[1])) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s still has %s", args[0], args[1])
		}
	}
}
