package extract

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// Argument is the program's first argument when it is started to decode a file.
const Argument = "__extract"

// A task is the child's input: a line of JSON, followed by the file.
type task struct {
	Kind   string
	Args   json.RawMessage
	Size   int64
	Memory int64 // bytes
	CPU    time.Duration
	Time   time.Duration
}

// An answer is the child's output: a line of JSON, followed by the data.
type answer struct {
	Note        string
	Size        int
	Unsupported bool   // the error is [ErrUnsupported]
	Err         string // for people
	Open        string // why the child has no sandbox, or ""
}

const (
	maxAnswer = 8 << 10 // bytes of an answer without its data
	maxWords  = 2 << 10 // bytes of a child's error output
	waitDelay = 2 * time.Second
)

// run decodes a file in a child.
func (x *Extractor) run(ctx context.Context, j Job, memory int64) ([]byte, string, error) {
	args, err := json.Marshal(j.Args)
	if err != nil {
		return nil, "", fmt.Errorf("extract: arguments: %w", err)
	}
	head, err := json.Marshal(task{j.Kind, args, j.Size, memory, x.cpu, x.all})
	if err != nil {
		return nil, "", fmt.Errorf("extract: task: %w", err)
	}
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, x.all)
	defer cancel()
	cmd := exec.CommandContext(ctx, x.self)
	cmd.Args = []string{"gateway", Argument}
	// The child gets nothing of the gateway's environment. With GORACE, a build with the race
	// detector does not sleep for a second before it exits.
	cmd.Env = []string{"GOMAXPROCS=1", "GOTRACEBACK=none", "GORACE=atexit_sleep_ms=0"}
	out, words := &capped{most: maxAnswer + j.Most}, &capped{most: maxWords}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, words, waitDelay
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, "", fmt.Errorf("extract: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("extract: %w", err)
	}
	file := &source{r: io.NewSectionReader(j.File, 0, j.Size), left: j.Size}
	// The child may not read all of its input; its exit says why. The pipe stays open until then,
	// because its end tells the child that the gateway has ended.
	_, _ = io.Copy(in, io.MultiReader(bytes.NewReader(append(head, '\n')), file))
	if file.err != nil {
		cancel()
	}
	err = cmd.Wait()
	switch {
	case outer.Err() != nil:
		return nil, "", outer.Err()
	case file.err != nil:
		return nil, "", file.err
	case ctx.Err() != nil:
		return nil, "", errTooLong
	case err != nil:
		return nil, "", x.exitError(outer, j, cmd, words)
	}
	return x.read(outer, out)
}

// exitError returns an error with the reason why a child has died.
func (x *Extractor) exitError(ctx context.Context, j Job, cmd *exec.Cmd, words *capped) error {
	output := words.b.String()
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	err := errBroken
	switch {
	case strings.Contains(output, wordsMemory), strings.Contains(output, wordsThread),
		strings.Contains(output, wordsRace):
		err = errMemory
	case strings.Contains(output, wordsTime), used >= x.cpu-time.Second/2:
		err = errTooLong
	case cmd.ProcessState.ExitCode() < 0 && output == "":
		err = errMemory // the system's OOM killer has killed it
	}
	if errors.Is(err, errBroken) {
		first, _, _ := strings.Cut(output, "\n")
		x.log.WarnContext(ctx, "decoding a file has failed", "kind", j.Kind, "for", j.For,
			"state", cmd.ProcessState.String(), "words", fmt.Sprintf("%.200q", first))
	}
	return err
}

// read returns the contents of a child's answer.
func (x *Extractor) read(ctx context.Context, out *capped) ([]byte, string, error) {
	line, data, _ := bytes.Cut(out.b.Bytes(), []byte("\n"))
	var a answer
	if err := json.Unmarshal(line, &a); err != nil || len(data) != a.Size {
		return nil, "", errBroken
	}
	if a.Open != "" {
		x.warned.Do(func() {
			x.log.WarnContext(ctx, "files are decoded without a sandbox, though with bounds",
				"err", a.Open)
		})
	}
	switch {
	case a.Unsupported:
		return nil, "", ErrUnsupported
	case a.Err != "":
		return nil, "", errors.New(a.Err)
	}
	return data, a.Note, nil
}

// A source stores the error of a file, which is not the child's fault.
type source struct {
	r    io.Reader
	left int64 // bytes that the child still waits for
	err  error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.left -= int64(n)
	if errors.Is(err, io.EOF) && s.left > 0 {
		err = errShorter // otherwise the child would wait for the rest until its time is over
	}
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// A capped is a buffer that stores at most most bytes and drops the rest.
type capped struct {
	b    bytes.Buffer
	most int
}

// Write implements [io.Writer].
func (c *capped) Write(p []byte) (int, error) {
	c.b.Write(p[:min(len(p), c.most-c.b.Len())])
	return len(p), nil
}
