package extract

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/debug"
	"strings"

	"gateway/agent/tools/shell/sandbox"
)

// Exit codes of the child.
const (
	exitUsage = 2
	exitAlone = 3 // the gateway has ended
	exitLimit = 4
)

// Parts of the messages that a child prints when it exceeds a limit: its own messages or those of
// the Go runtime, of a cgo program that gets no memory for a thread's stack, and of the race
// detector.
const (
	wordsMemory = "out of memory"
	wordsTime   = "out of time"
	wordsThread = "pthread_create failed"
	wordsRace   = "failed to allocate"
)

// Main decodes one file from standard input. The program's main function calls it first and exits
// with the returned code. more adds kinds of work to those of this package.
func Main(more map[string]Func) int {
	in := bufio.NewReader(os.Stdin)
	var t task
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &t)
	}
	// A quarter is left to end the current page and to write the answer.
	late := func() bool { return used() > t.CPU*3/4 }
	kinds := map[string]Func{kindText: textUntil(late), kindPicture: fit}
	maps.Copy(kinds, more)
	work := kinds[t.Kind]
	if err != nil || work == nil {
		fmt.Fprintln(os.Stderr, "gateway: "+Argument+" is for the gateway's own use")
		return exitUsage
	}
	var a answer
	if err := confine(t); err != nil {
		fmt.Fprintln(os.Stderr, "gateway: limits:", err)
		return exitLimit
	}
	if err := sandbox.Seal(); err != nil {
		a.Open = err.Error()
	}
	debug.SetGCPercent(100)                // the start of the program may have raised it
	debug.SetMemoryLimit(t.Memory / 4 * 3) // so that the garbage collector runs in time
	file := make([]byte, t.Size)
	if _, err := io.ReadFull(in, file); err != nil {
		return exitAlone
	}
	go func() { // until the process ends
		_, _ = io.Copy(io.Discard, in) // nothing is ever written; only the end matters
		os.Exit(exitAlone)
	}()
	data, note, err := recovered(work, t.Args, file)
	if a.Note, a.Size = note, len(data); err != nil {
		a.Size, data = 0, nil
		a.Unsupported, a.Err = errors.Is(err, ErrUnsupported), words(err)
	}
	head, err := json.Marshal(a)
	if err == nil {
		_, err = os.Stdout.Write(append(append(head, '\n'), data...))
	}
	if err != nil {
		return exitAlone
	}
	return 0
}

// recovered does the work. It converts a panic to an error, because the file is the cause.
func recovered(work Func, args json.RawMessage, file []byte) (data []byte, note string, err error) {
	defer func() {
		if p := recover(); p != nil {
			data, note, err = nil, "", errBroken
		}
	}()
	return work(args, file)
}

// words returns the text of an error about the file, cut to fit into an answer.
func words(err error) string {
	_, clause, ok := strings.Cut(err.Error(), "picture: ")
	if !ok {
		clause = err.Error()
	}
	return strings.ToValidUTF8(clause[:min(len(clause), 500)], "")
}
