package extract

import (
	"bufio"
	"bytes"
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
	exitAlone = 3 // the gateway is gone
	exitLimit = 4
)

// What a child says when it ends at a bound: what it says itself or Go does for it, Go in a program
// with C that gets no memory for a thread's stack, and the detector of races.
const (
	wordsMemory = "out of memory"
	wordsTime   = "out of time"
	wordsThread = "pthread_create failed"
	wordsRace   = "failed to allocate"
)

// Main decodes one file, which comes from the standard input. The program's main calls it before
// all else and exits with what it returns. The kinds of work are those of this package and more.
func Main(more map[string]Func) int {
	in := bufio.NewReader(os.Stdin)
	var t task
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &t)
	}
	kinds := map[string]Func{kindText: text, kindPicture: fit}
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
	debug.SetMemoryLimit(t.Memory / 4 * 3) // the garbage is collected in time
	file := make([]byte, t.Size)
	if _, err := io.ReadFull(in, file); err != nil {
		return exitAlone
	}
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, in) // nothing comes: what counts is the end
		os.Exit(exitAlone)
	}()
	data, note, err := guarded(work, t.Args, file)
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

// guarded does the work. A panic is the file's fault.
func guarded(work Func, args json.RawMessage, file []byte) (data []byte, note string, err error) {
	defer func() {
		if p := recover(); p != nil {
			data, note, err = nil, "", errBroken
		}
	}()
	return work(args, file)
}

// words returns what an error says of the file, in so many bytes that they fit into an answer.
func words(err error) string {
	_, clause, ok := strings.Cut(err.Error(), "picture: ")
	if !ok {
		clause = err.Error()
	}
	return strings.ToValidUTF8(clause[:min(len(clause), 500)], "")
}

func newReader(file []byte) *bytes.Reader { return bytes.NewReader(file) }
