package agent

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gateway/agent/llm/llmtest"
	"gateway/agent/schedule"
	"gateway/agent/tool"
	"gateway/bus"
	"gateway/store"
)

// oldVersions has the last versions of the tables in which a message had a note instead of an
// origin, and a session had only its key.
var oldVersions = map[string]int{"bus": 7, "session": 4}

// Open work of an older version continues: each turn ends with one answer, and no dead letter is
// lost.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	migrations := allMigrations()
	for i, m := range migrations {
		if n, ok := oldVersions[m.Package]; ok {
			migrations[i].Steps = m.Steps[:n]
		}
	}
	rows, err := os.ReadFile("testdata/upgrade.sql")
	if err != nil {
		t.Fatal(err)
	}
	database := databaseOf(migrations, func(tx *store.Tx) error {
		for query := range strings.SplitSeq(strings.TrimSuffix(string(rows), ";\n"), ";\n") {
			if _, err := tx.Exec(query); err != nil {
				return err
			}
		}
		return nil
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorldOf(t, database)
		w.jobs(schedule.Options{})
		tasks := w.spawning(act("look", tool.Pure, always("seen")))
		tasks.Queue(llmtest.Say("dug"))
		for range 5 {
			w.model.Queue(llmtest.Say("fine"))
		}
		w.start()
		w.say("b", "the blue one")
		w.wantQuiet()
		for _, chat := range []string{"a", "b", "c", "d", "e"} {
			w.wantAnswers(chat, "fine")
		}
		want := []string{"1 done", "2 done"}
		if got := w.column("SELECT id || ' ' || state FROM runs"); !slices.Equal(got, want) {
			t.Errorf("the runs are %q, want %q", got, want)
		}
		dead, err := bus.DeadLetters(w.read())
		if err != nil || dead != 1 {
			t.Errorf("%d dead letters are left, %v; want 1", dead, err)
		}
		w.sleep(time.Minute)
	})
}
