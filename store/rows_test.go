package store

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestCollect(t *testing.T) {
	db := openLog(t)
	fill(t, db, 1, 4, "done", "text")
	errBad := errors.New("bad")
	for _, tt := range []struct {
		name string
		fail map[int64]error // errors by row
		want []int64
		text string
		bad  int
	}{
		{"all", nil, []int64{1, 2, 3, 4}, "", 0},
		{"a row error leaves the row out", map[int64]error{
			2: &RowError{Table: "log", ID: 2, Err: errBad},
			3: &RowError{Table: "log", ID: 3, Err: errBad},
		}, []int64{1, 4}, "", 2},
		{"another error ends it", map[int64]error{
			2: &RowError{Table: "log", ID: 2, Err: errBad}, 3: errBad,
		}, nil, "read log: bad", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Collect(db.Read(t.Context()), "read log", func(scan Scan, id *int64) error {
				if err := scan(id); err != nil {
					return err
				}
				return tt.fail[*id]
			}, "SELECT id FROM log WHERE state = $1 ORDER BY id", "done")
			if !slices.Equal(got, tt.want) {
				t.Errorf("rows %d, want %d", got, tt.want)
			}
			rows, ok := RowErrors(err)
			if tt.text == "" && (!ok || len(rows) != tt.bad) ||
				tt.text != "" && (!errors.Is(err, errBad) || err.Error() != tt.text) {
				t.Errorf("the error is %v, want %d rows, or %q", err, tt.bad, tt.text)
			}
		})
	}
	_, err := Collect(db.Read(t.Context()), "read log", func(scan Scan, id *int64) error {
		return scan(id)
	}, "SELECT id FROM no_such_table")
	if err == nil || !strings.HasPrefix(err.Error(), "read log: ") {
		t.Errorf("the error of a query is %v", err)
	}
}
