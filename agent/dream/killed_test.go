package dream

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// busy is a world in which a run changes each document and writes a skill.
func busy(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, dreams(
		"[USER] lives in Tokyo, not Osaka\n[MEMORY] uses Go\n[SOUL] is brief\n[SKILL] report: steps",
		edit("USER.md", "- lives in Osaka", "- lives in Tokyo"),
		edit("MEMORY.md", "", "## Work\n- uses Go"),
		edit("SOUL.md", "", "- is brief"),
		skill("report", "makes reports", "1. Look."),
	))
	w.put(ann, "USER.md", "# User\n\n- called Ann\n- has a cat\n- lives in Osaka\n- 40 years old\n")
	w.put(ann, "MEMORY.md", "# Memory\n\n## Work\n\n- writes a gateway\n\n## Home\n\n- has a garden\n")
	w.live(ann, "a", "b", "c")
	return w
}

// agree checks that the documents, the versions and the cursor are the same as after one complete
// run.
func agree(t *testing.T, w *world) {
	t.Helper()
	w.want(ann, "USER.md", "# User\n\n- called Ann\n- has a cat\n- lives in Tokyo\n- 40 years old\n")
	w.want(ann, "MEMORY.md",
		"# Memory\n\n## Work\n\n- writes a gateway\n- uses Go\n\n## Home\n\n- has a garden\n")
	w.want(ann, "SOUL.md", "- is brief\n")
	if got := w.get(ann, "skills/report/SKILL.md"); strings.Count(got, "1. Look.") != 1 {
		t.Errorf("skill = %q", got)
	}
	if got, want := w.commits(ann), []string{person, author}; !slices.Equal(got, want) {
		t.Errorf("versions by %q, want %q", got, want)
	}
	if got := w.dreamed(ann); got != 3 {
		t.Errorf("cursor = %d, want 3", got)
	}
}

// kill runs until the process ends before or after the given step. It returns false if the run
// has fewer steps.
func (w *world) kill(at int, after bool) bool {
	w.t.Helper()
	w.end = &processEnd{at: at, after: after}
	_, err := w.run(ann)
	if err != nil && !errors.Is(err, errKilled) {
		w.t.Fatalf("killed at step %d, after %t: Run = %v, want %v", at, after, err, errKilled)
	}
	w.end = &processEnd{}
	return err != nil
}

// The next run completes a run that was killed at any step. Nothing is asked or done twice.
func TestKilled(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		steps := 0
		for at := 1; ; at++ {
			w := busy(t)
			if !w.kill(at, after) {
				break
			}
			steps++
			asked, known := w.requests, len(w.state[ann]) > 0
			report := w.mustRun(ann)
			if known && w.requests != asked {
				t.Errorf("step %d: analysed again", at)
			}
			agree(t, w)
			if report.Version == "" || report.To != 3 || len(report.Changes) != 5 ||
				len(report.Skipped) > 0 {
				t.Errorf("step %d, after %t: report = %+v", at, after, report)
			}
			if t.Failed() {
				t.Fatalf("killed at step %d, after %t", at, after)
			}
		}
		if steps < 15 {
			t.Errorf("%d steps, want at least 15: something is not tried", steps)
		}
	}
}

// The next run also completes a run that was killed twice. Every fifth pair of steps is tried.
func TestKilledTwice(t *testing.T) {
	t.Parallel()
	for first := 2; ; first++ {
		ended := true
		for second := 1 + first%5; ; second += 5 {
			w := busy(t)
			if !w.kill(first, first%2 == 0) {
				break
			}
			ended = false
			if !w.kill(second, second%2 == 1) {
				break
			}
			w.mustRun(ann)
			agree(t, w)
			if t.Failed() {
				t.Fatalf("killed at step %d, then %d", first, second)
			}
		}
		if ended {
			break
		}
	}
}

// A line that a person writes at any moment stays. The run still makes its changes to other
// lines.
func TestEdited(t *testing.T) {
	t.Parallel()
	for _, kill := range []bool{false, true} {
		for at := 1; ; at++ {
			w := busy(t)
			edited := false
			byHand := func() {
				edited = true
				text := w.get(ann, "USER.md")
				w.put(ann, "USER.md", strings.Replace(text, "called Ann", "called Annie", 1))
			}
			if kill {
				if !w.kill(at, true) {
					break
				}
				byHand()
			} else {
				w.end.before = func(step int, _ string) {
					if step == at {
						byHand()
					}
				}
			}
			report := w.mustRun(ann)
			if !edited {
				break
			}
			w.want(ann, "USER.md",
				"# User\n\n- called Annie\n- has a cat\n- lives in Tokyo\n- 40 years old\n")
			w.want(ann, "SOUL.md", "- is brief\n")
			if got := w.dreamed(ann); got != 3 || len(report.Skipped) > 0 {
				t.Errorf("cursor = %d, want 3; report %+v", got, report)
			}
			if got := w.commits(ann); len(got) > 3 || countOf(got, author) != 1 {
				t.Errorf("versions by %q", got)
			}
			if t.Failed() {
				t.Fatalf("edited at step %d, killed there: %t", at, kill)
			}
		}
	}
}

func countOf(list []string, s string) int {
	n := 0
	for _, v := range list {
		if v == s {
			n++
		}
	}
	return n
}

// A person's edit of the same lines is never overwritten. The report says which changes were not
// made.
func TestConflict(t *testing.T) {
	t.Parallel()
	byHand := "# User\n\n- called Ann\n- has a cat\n- lives in Kyoto now\n- 40 years old\n"
	for at := 1; ; at++ {
		w := busy(t)
		edited, written := false, false
		w.end.before = func(step int, name string) {
			if step == at {
				edited = true
				written = strings.Contains(w.get(ann, "USER.md"), "Tokyo")
				w.put(ann, "USER.md", byHand)
			}
		}
		report := w.mustRun(ann)
		if !edited {
			break
		}
		w.want(ann, "USER.md", byHand)
		w.want(ann, "SOUL.md", "- is brief\n")
		if got := w.dreamed(ann); got != 3 {
			t.Errorf("cursor = %d, want 3", got)
		}
		skipped := strings.Join(report.Skipped, "\n")
		// Before the second phase, Dream reads the person's text and can't make its edit.
		if late := at > 2 && !written; late != strings.Contains(skipped, `added "lives in Tokyo"`) {
			t.Errorf("skipped = %q", skipped)
		}
		if t.Failed() {
			t.Fatalf("edited at step %d", at)
		}
	}
}

// If a person deletes a document or creates a skill that the run wants to write, the person's
// change stays.
func TestDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	w := busy(t)
	w.end.before = func(_ int, name string) {
		if name == "has" {
			w.erase(ann, "USER.md")
			w.put(ann, "skills/report/SKILL.md", "mine")
		}
	}
	report := w.mustRun(ann)
	w.want(ann, "USER.md", "")
	w.want(ann, "skills/report/SKILL.md", "mine")
	w.want(ann, "SOUL.md", "- is brief\n")
	if len(report.Skipped) != 3 {
		t.Errorf("skipped = %q, want the two lines of USER.md and the skill", report.Skipped)
	}
}

// If a person reverts a change before its version is made, the change is not made again.
func TestTakenBack(t *testing.T) {
	t.Parallel()
	w := busy(t)
	user := w.get(ann, "USER.md")
	commits := 0
	w.end.before = func(step int, name string) {
		if name == "commit" {
			commits++
		}
		if commits == 2 { // the commit by Dream
			w.end.at = step
		}
	}
	if _, err := w.run(ann); !errors.Is(err, errKilled) {
		t.Fatalf("Run = %v, want %v", err, errKilled)
	}
	w.end = &processEnd{}
	w.put(ann, "USER.md", user)
	report := w.mustRun(ann)
	w.want(ann, "USER.md", user)
	w.want(ann, "SOUL.md", "- is brief\n")
	if got := w.commits(ann); countOf(got, author) != 1 || report.Version == "" {
		t.Errorf("versions by %q, report %+v", got, report)
	}
}
