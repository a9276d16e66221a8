package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// times returns the next n times of w after a moment, as a clock in loc shows them.
func times(w When, after time.Time, n int, loc *time.Location) (list []string) {
	for range n {
		next, ok := w.Next(after)
		if !ok {
			return append(list, "never")
		}
		list = append(list, next.In(loc).Format("01-02 15:04 -0700"))
		after = next
	}
	return list
}

// TestClockChanges checks the rules for days on which the clock changes.
func TestClockChanges(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		zone, cron, after string
		want              string // separated by "|"
	}{
		// The wall time stays the same over both changes.
		{"Europe/Berlin", "0 9 * * *", "2026-03-28 00:00",
			"03-28 09:00 +0100|03-29 09:00 +0200|03-30 09:00 +0200"},
		{"Europe/Berlin", "0 9 * * *", "2026-10-24 00:00",
			"10-24 09:00 +0200|10-25 09:00 +0100|10-26 09:00 +0100"},
		// A skipped time runs once, at the first moment after the gap.
		{"Europe/Berlin", "30 2 * * *", "2026-03-28 00:00",
			"03-28 02:30 +0100|03-29 03:00 +0200|03-30 02:30 +0200"},
		{"Europe/Berlin", "*/15 * * * *", "2026-03-29 01:29",
			"03-29 01:30 +0100|03-29 01:45 +0100|03-29 03:00 +0200|03-29 03:15 +0200"},
		{"Europe/Berlin", "0 * * * *", "2026-03-29 00:30",
			"03-29 01:00 +0100|03-29 03:00 +0200|03-29 04:00 +0200"},
		// A time that occurs twice runs the first time.
		{"Europe/Berlin", "30 2 * * *", "2026-10-24 12:00",
			"10-25 02:30 +0200|10-26 02:30 +0100"},
		{"Europe/Berlin", "*/15 * * * *", "2026-10-25 01:59",
			"10-25 02:00 +0200|10-25 02:15 +0200|10-25 02:30 +0200|10-25 02:45 +0200|" +
				"10-25 03:00 +0100"},
		{"Europe/Berlin", "0 * * * *", "2026-10-25 00:30",
			"10-25 01:00 +0200|10-25 02:00 +0200|10-25 03:00 +0100"},
		{"America/New_York", "30 2 * * *", "2026-03-07 12:00",
			"03-08 03:00 -0400|03-09 02:30 -0400"},
		{"America/New_York", "30 1 * * *", "2026-10-31 12:00",
			"11-01 01:30 -0400|11-02 01:30 -0500"},
		// A change of half an hour.
		{"Australia/Lord_Howe", "15 2 * * *", "2026-10-03 12:00",
			"10-04 02:30 +1100|10-05 02:15 +1100"},
		{"Australia/Lord_Howe", "45 1 * * *", "2026-04-04 12:00",
			"04-05 01:45 +1100|04-06 01:45 +1030"},
		{"Australia/Lord_Howe", "*/15 * * * *", "2026-04-05 01:14",
			"04-05 01:15 +1100|04-05 01:30 +1100|04-05 01:45 +1100|04-05 02:00 +1030"},
		// A skipped day.
		{"Pacific/Apia", "0 9 * * *", "2011-12-29 00:00",
			"12-29 09:00 -1000|12-31 00:00 +1400|12-31 09:00 +1400"},
		{"Pacific/Apia", "0 0 31 12 *", "2011-12-29 00:00",
			"12-31 00:00 +1400|12-31 00:00 +1400"},
		// A change at midnight.
		{"America/Sao_Paulo", "0 0 * * *", "2018-11-03 12:00",
			"11-04 01:00 -0200|11-05 00:00 -0200"},
		{"Asia/Beirut", "0 0 * * *", "2026-03-28 12:00",
			"03-29 01:00 +0300|03-30 00:00 +0300"},
		{"Asia/Kathmandu", "0 9 * * *", "2026-06-01 12:00",
			"06-02 09:00 +0545|06-03 09:00 +0545"},
		// The last days of a leap year.
		{"Europe/Berlin", "30 0,23 * * *", "2040-12-30 12:00",
			"12-30 23:30 +0100|12-31 00:30 +0100|12-31 23:30 +0100|01-01 00:30 +0100"},
		{"America/New_York", "30 0,23 * * *", "2040-12-30 12:00",
			"12-30 23:30 -0500|12-31 00:30 -0500|12-31 23:30 -0500|01-01 00:30 -0500"},
		{"Pacific/Auckland", "30 0,23 * * *", "2040-12-30 12:00",
			"12-30 23:30 +1300|12-31 00:30 +1300|12-31 23:30 +1300|01-01 00:30 +1300"},
	} {
		t.Run(test.zone+" "+test.cron, func(t *testing.T) {
			loc := zone(t, test.zone)
			after, err := time.ParseInLocation(shown, test.after, loc)
			if err != nil {
				t.Fatal(err)
			}
			w, err := ParseCron(test.cron, loc)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Split(test.want, "|")
			if got := times(w, after, len(want), loc); strings.Join(got, "|") != test.want {
				t.Errorf("after %s\n got %q\nwant %q", test.after, got, want)
			}
		})
	}
}

// TestNextInSecondPass checks Next for a moment in the second pass of a repeated hour.
func TestNextInSecondPass(t *testing.T) {
	t.Parallel()
	loc := zone(t, "Europe/Berlin")
	w, err := ParseCron("*/15 2 * * *", loc)
	if err != nil {
		t.Fatal(err)
	}
	after := time.Date(2026, 10, 25, 1, 20, 0, 0, time.UTC) // the second 02:20
	if got, want := times(w, after, 1, loc)[0], "10-26 02:00 +0100"; got != want {
		t.Errorf("Next = %s, want %s", got, want)
	}
}

func TestCronDates(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		cron, after string
		want        string // separated by "|"
	}{
		{"0 9 29 2 *", "2026-11-21 00:00", "2028-02-29|2032-02-29"},
		{"0 9 29 2 *", "2096-01-01 00:00", "2096-02-29|never"}, // 2100 is not a leap year
		{"0 9 31 * *", "2026-01-31 12:00", "2026-03-31|2026-05-31|2026-07-31|2026-08-31"},
		{"0 9 L * *", "2027-01-31 12:00", "2027-02-28|2027-03-31"},
		{"0 9 L 2 *", "2027-01-01 00:00", "2027-02-28|2028-02-29"},
		{"0 9 31 12 *", "2026-12-31 10:00", "2027-12-31"},
		{"@yearly", "2026-12-31 23:59", "2027-01-01|2028-01-01"},
		{"0 9 15W * *", "2026-08-01 00:00", "2026-08-14|2026-09-15"}, // the 15th is a Saturday
		{"0 9 * * 1#2", "2026-11-01 00:00", "2026-11-09|2026-12-14"},
		{"0 9 * * FRI#1", "2026-11-01 00:00", "2026-11-06|2026-12-04"},
		{"0 9 * * 5L", "2026-11-01 00:00", "2026-11-27|2026-12-25"},
		{"0 9 * * friL", "2026-11-01 00:00", "2026-11-27|2026-12-25"},
		{"0 9 * * 7", "2026-11-21 00:00", "2026-11-22|2026-11-29"},
		{"0 9 * * 0", "2026-11-21 00:00", "2026-11-22|2026-11-29"},
		{"0 9 * * 5-7", "2026-11-21 00:00", "2026-11-21|2026-11-22|2026-11-27"},
		{"0 9 * * sat,sun", "2026-11-21 00:00", "2026-11-21|2026-11-22|2026-11-28"},
		{"0 9 * nov-dec mon", "2026-11-21 00:00", "2026-11-23|2026-11-30|2026-12-07"},
		{"0 9 13 * 5", "2026-11-01 00:00", "2026-11-06|2026-11-13|2026-11-20"}, // one is enough
		{"0 9 ? * 1", "2026-11-21 00:00", "2026-11-23"},
		{"0 9 1-31/10 * *", "2026-11-01 00:00", "2026-11-01|2026-11-11|2026-11-21|2026-12-01"},
	} {
		t.Run(test.cron, func(t *testing.T) {
			w, err := ParseCron(test.cron, time.UTC)
			if err != nil {
				t.Fatal(err)
			}
			at, err := time.Parse(shown, test.after)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for range strings.Split(test.want, "|") {
				next, ok := w.Next(at)
				if !ok {
					got = append(got, "never")
					break
				}
				got = append(got, next.Format(time.DateOnly))
				at = next
			}
			if strings.Join(got, "|") != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestCronRefuses(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		"":                                      "want 5 fields",
		"0 9 * *":                               "not 4",
		"0 0 9 * * *":                           "not 6",
		"0 9 * * * 2027":                        "not 6",
		"0 0 9 * * * 2027":                      "not 7",
		"@everysecond":                          "want @yearly",
		"@reboot":                               "want @yearly",
		"0 9 30 2 *":                            "no such date",
		"0 9 31 2,4,6,9,11 *":                   "no such date",
		"60 * * * *":                            "from 0 to 59",
		"0 24 * * *":                            "from 0 to 23",
		"0 9 0 * *":                             "from 1 to 31",
		"0 9 32W * *":                           "from 1 to 31",
		"0 9 * 13 *":                            "from 1 to 12",
		"0 9 * * 8":                             "weekday",
		"0,61 * * * *":                          "from 0 to 59", // an error also after a valid number
		"0 9 * * 1,9":                           "weekday",
		"* 9-17-20 * * *":                       "hour",
		"*/0 * * * *":                           "step",
		"*/90 * * * *":                          "step",
		"*/5/2 * * * *":                         "minute",
		"1, * * * *":                            "minute",
		"+5 * * * *":                            "minute",
		"-5 * * * *":                            "minute",
		"? * * * *":                             "minute",
		"MON * * * *":                           "MON",
		"0 9 * MON *":                           "MON",
		"0 9 * * JAN":                           "JAN",
		"0 9 * * MONDAY":                        "MONDAY",
		"0 9 L-3 * *":                           "day",
		"0 9 LW * *":                            "LW",
		"0 9 * * 9L":                            "weekday",
		"0 9 * * 1#6":                           "weekday",
		"0 9 * * fri-mon":                       "backwards",
		"0 17-9 * * *":                          "backwards",
		"every day":                             "not 2",
		"0 9 * * *\x00":                         "weekday",
		strings.Repeat("1,", 200) + "1 * * * *": "200 bytes",
	} {
		w, err := ParseCron(expr, time.UTC)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseCron(%q) = %v, %v; want an error with %q", expr, w, err, want)
		}
	}
}

func TestEvery(t *testing.T) {
	t.Parallel()
	anchor := time.Date(2026, 3, 28, 12, 7, 3, 500e6, time.UTC)
	w, err := ParseEvery("every 1h 30m", anchor, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ after, want time.Duration }{
		{-48 * time.Hour, 90 * time.Minute}, // the clock was put back
		{0, 90 * time.Minute},
		{time.Millisecond, 90 * time.Minute},
		{90*time.Minute - time.Millisecond, 90 * time.Minute},
		{90 * time.Minute, 180 * time.Minute},
		{1000*time.Hour + time.Minute, 1000*time.Hour + 30*time.Minute}, // the phase does not drift
	} {
		got, ok := w.Next(anchor.Add(test.after))
		if want := anchor.Add(test.want); !ok || !got.Equal(want) {
			t.Errorf("Next(anchor + %s) = %v, %v; want %v", test.after, got, ok, want)
		}
	}
	if _, ok := w.Next(time.Date(2100, 12, 31, 23, 0, 0, 0, time.UTC)); ok {
		t.Error("there is a time after 2100")
	}
	for text, want := range map[string]string{
		"90m": "1h30m", "1d": "1d", "2w": "14d", "90 minutes": "1h30m", "2 hours": "2h",
		"1h30m": "1h30m", "3600s": "1h", "EVERY 2 Days": "2d",
	} {
		w, err := ParseEvery(text, anchor, time.Minute)
		if err != nil || w.String() != "every "+want {
			t.Errorf("ParseEvery(%q) = %v, %v; want every %s", text, w, err, want)
		}
	}
	for text, want := range map[string]string{
		"59s": "too often", "0m": "too often", "": "not a length", "5": "not a length",
		"1.5h": "not a length",
		"-5m":  "not a length", "99999w": "10 years", "3650d 3650d": "10 years", "m": "not a length",
		"999999999w 999999999w 999999999w": "10 years", "5mm": "not a length",
	} {
		if w, err := ParseEvery(text, anchor, time.Minute); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("ParseEvery(%q) = %v, %v; want an error with %q", text, w, err, want)
		}
	}
}

func TestAt(t *testing.T) {
	t.Parallel()
	berlin := zone(t, "Europe/Berlin")
	now := time.Date(2026, 11, 21, 14, 30, 0, 0, berlin) // a Saturday
	for text, want := range map[string]string{
		"2026-11-22T09:00:00Z":      "2026-11-22 10:00 +0100",
		"2026-11-22T09:00:00+05:45": "2026-11-22 04:15 +0100",
		"2026-11-22t09:00z":         "2026-11-22 10:00 +0100",
		"2026-11-22 09:00":          "2026-11-22 09:00 +0100",
		"2026-11-22T09:00":          "2026-11-22 09:00 +0100",
		"on 2026-11-22 at 9:00":     "2026-11-22 09:00 +0100",
		"2027-07-01 09:00":          "2027-07-01 09:00 +0200",
		"2027-03-28 02:30":          "2027-03-28 03:00 +0200", // skipped
		"2027-10-31 02:30":          "2027-10-31 02:30 +0200", // the first 02:30
		"15:00":                     "2026-11-21 15:00 +0100",
		"at 14:30":                  "2026-11-22 14:30 +0100",
		"9:05":                      "2026-11-22 09:05 +0100",
		"9am":                       "2026-11-22 09:00 +0100",
		"12 am":                     "2026-11-22 00:00 +0100",
		"12:15 PM":                  "2026-11-22 12:15 +0100",
		"3pm":                       "2026-11-21 15:00 +0100",
		"today 18:00":               "2026-11-21 18:00 +0100",
		"tomorrow at 18:00":         "2026-11-22 18:00 +0100",
		"Saturday 15:00":            "2026-11-21 15:00 +0100",
		"sat 14:00":                 "2026-11-28 14:00 +0100",
		"monday at 9am":             "2026-11-23 09:00 +0100",
		"in 20m":                    "2026-11-21 14:50 +0100",
		"20 minutes":                "2026-11-21 14:50 +0100",
		"in 1h30m":                  "2026-11-21 16:00 +0100",
		"in 1 day":                  "2026-11-22 14:30 +0100",
		"in 1 hour and 30 minutes":  "2026-11-21 16:00 +0100",
		"2026-11-22 9:00 pm":        "2026-11-22 21:00 +0100",
		"2026-11-22 at 9 a.m.":      "2026-11-22 09:00 +0100",
		"2026-11-22 09:00:30":       "2026-11-22 09:00 +0100",
	} {
		w, err := ParseAt(text, now, berlin)
		next, ok := w.Next(now)
		if got := next.Format("2006-01-02 15:04 -0700"); err != nil || !ok || got != want {
			t.Errorf("ParseAt(%q) = %s, %v; want %s", text, got, err, want)
		}
		if _, ok := w.Next(next); ok || !w.Once() {
			t.Errorf("ParseAt(%q) has a second time", text)
		}
	}
	for text, want := range map[string]string{
		"": "not a time", "soon": "not a time", "2026-11-22": "not a time", "25:00": "no such time",
		"9:60": "no such time", "13pm": "no such time", "0am": "no such time", "9": "not a time",
		"2026-02-30 09:00": "no such date", "2026-11-20 09:00": "is over", "today 9:00": "is over",
		"in 0m": "is over", "2101-01-01 00:00": "2101", "in 9999999w": "10 years",
		"2026-11-22 24:00": "no such date", "1960-01-01 00:00": "is over",
		"2026-11-22 13:00 pm": "no such date",
	} {
		w, err := ParseAt(text, now, berlin)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseAt(%q) = %v, %v; want an error with %q", text, w, err, want)
		}
	}
}

func TestParseReminder(t *testing.T) {
	t.Parallel()
	berlin := zone(t, "Europe/Berlin")
	now := time.Date(2026, 11, 21, 14, 30, 0, 0, berlin)
	for text, want := range map[string]string{
		"in 20m to call mum":                     "once, 2026-11-21 14:50 CET; call mum",
		"in 2 hours that it rains":               "once, 2026-11-21 16:30 CET; it rains",
		"In 1h 30m Call Mum":                     "once, 2026-11-21 16:00 CET; Call Mum",
		"in 1 hour and 30 minutes to call":       "once, 2026-11-21 16:00 CET; call",
		"every 1 hour and 30 minutes to stretch": "every 1h30m; stretch",
		"in 20m and 3 of us meet":                "once, 2026-11-21 14:50 CET; and 3 of us meet",
		"2026-12-01 9:00 pm to go":               "once, 2026-12-01 21:00 CET; go",
		"on 2026-12-01 at 9:30 P.M. to go":       "once, 2026-12-01 21:30 CET; go",
		"2026-12-01 9:00 a letter is due":        "once, 2026-12-01 09:00 CET; a letter is due",
		"tomorrow 9:00 to get up":                "once, 2026-11-22 09:00 CET; get up",
		"tomorrow at 9am to get up":              "once, 2026-11-22 09:00 CET; get up",
		"2026-12-01 18:30 to go":                 "once, 2026-12-01 18:30 CET; go",
		"2026-12-01T18:30:00Z go":                "once, 2026-12-01 19:30 CET; go",
		"at 18:00 20 minutes of sport":           "once, 2026-11-21 18:00 CET; 20 minutes of sport",
		"monday 8:00 to 12 people":               "once, 2026-11-23 08:00 CET; 12 people",
		"on monday at 8:00 to":                   "once, 2026-11-23 08:00 CET; to",
		"every 2h to drink":                      "every 2h; drink",
		"every hour to drink":                    "every 1h; drink",
		"every day at 8:00 to drink":             "at 0 8 * * * (Europe/Berlin); drink",
		"every monday at 8:00 to drink":          "at 0 8 * * 1 (Europe/Berlin); drink",
		"every weekday 8:30am drink":             "at 30 8 * * 1-5 (Europe/Berlin); drink",
		"every mon, wed and friday at 20:15 run": "at 15 20 * * 1,3,5 (Europe/Berlin); run",
		"every day to drink":                     "every 1d; drink",
		"at 9:30 p.m. to sleep":                  "once, 2026-11-21 21:30 CET; sleep",
		"tomorrow 12 a.m. to sleep":              "once, 2026-11-22 00:00 CET; sleep",
		"every day at 9 P.M. to sleep":           "at 0 21 * * * (Europe/Berlin); sleep",
		"at 18:00 next door has a party":         "once, 2026-11-21 18:00 CET; next door has a party",
		"at 18:00 may be late":                   "once, 2026-11-21 18:00 CET; may be late",
		"at 18:00 the 3 of us meet":              "once, 2026-11-21 18:00 CET; the 3 of us meet",
		"in 20m":                                 "once, 2026-11-21 14:50 CET; ",
		"in 20m at 15:00 the train leaves":       "once, 2026-11-21 14:50 CET; at 15:00 the train leaves",
		"every 2 days that at 8:00 it rains":     "every 2d; at 8:00 it rains",
		"every monday at 8:00 and so on":         "at 0 8 * * 1 (Europe/Berlin); and so on",
		"20:00 that tomorrow is a feast":         "once, 2026-11-21 20:00 CET; tomorrow is a feast",
		"tomorrow 9:00 every seat is taken":      "once, 2026-11-22 09:00 CET; every seat is taken",
		"at 18:00 Mondays are no fun":            "once, 2026-11-21 18:00 CET; Mondays are no fun",
		"at 18:00 every month has an end":        "once, 2026-11-21 18:00 CET; every month has an end",
	} {
		w, rest, err := ParseReminder(text, now, berlin, time.Minute)
		if got := w.String() + "; " + rest; err != nil || got != want {
			t.Errorf("ParseWish(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "call mum in 20m", "in 20 mum", "every", "every 5s x",
		"every day at 25:00 x", "at noon x", "9 x", "today 9:00 x", "in 2 days at 8:00 x",
		"in 2 weeks on monday at 9:00 x", "every 2 weeks monday 9am x",
		"every 2 days at 8:00 x", "every week at 9am x", "in 1w 8:00 x",
		"every monday at 8:00 and friday x", "every day at 8:00 and 20:00 x",
		"at 9:00 on monday to call mum", "9am tomorrow x", "18:00 2027-01-31 x",
		"8:00 every day to drink", "at 8:00 every monday, x", "20:00 every 2 days x",
		"at 9:00 in the evening to sleep", "9:00 tonight x", "at 9:00 on december 24 to buy gifts",
		"9am on the 24th x", "at 9:00 on Dec. 24th x", "9:00 on 24.12. x", "at 9:00 24 December x",
		"monday 9:00 next week x", "at 9:00 UTC to join", "every day at 6:00 in the afternoon x"} {
		if w, rest, err := ParseReminder(text, now, berlin, time.Minute); err == nil {
			t.Errorf("ParseWish(%q) = %v, %q; want an error", text, w, rest)
		}
	}
}

func TestTooOften(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		cron  string
		least time.Duration
		want  bool
	}{
		{"* * * * *", time.Minute, false},
		{"* * * * *", 61 * time.Second, true},
		{"0,1 9 * * *", time.Minute, false},
		{"0,1 9 * * *", 2 * time.Minute, true},
		{"59 23 * * *", 24 * time.Hour, false},
		{"30 * * * *", time.Hour, false}, // although the clock is put forward on the next day
		{"0 9 29 2 *", 24 * time.Hour, false},
	} {
		w, err := ParseCron(test.cron, zone(t, "Europe/Berlin"))
		if err != nil {
			t.Fatal(err)
		}
		if got := w.tooOften(now, test.least); got != test.want {
			t.Errorf("%s tooOften(%s) = %v, want %v", test.cron, test.least, got, test.want)
		}
	}
}

// TestNewest checks that newest finds the same time as counting from the first one.
func TestNewest(t *testing.T) {
	t.Parallel()
	loc := zone(t, "Europe/Berlin")
	known := time.Date(2025, 3, 1, 9, 0, 0, 0, loc)
	for _, expr := range []string{"0 9 * * *", "*/20 * * * *", "0 9 1 * *", "0 9 1 3 *",
		"0,1,2 9 * * *", "0 2 * * *", "30 2 * 10 0"} {
		w, err := ParseCron(expr, loc)
		if err != nil {
			t.Fatal(err)
		}
		after := w.series()
		first, _ := after(known)
		for now := first; now.Before(known.AddDate(1, 2, 0)); now = now.Add(701 * time.Hour) {
			want := first
			for next, ok := after(want); ok && !next.After(now); next, ok = after(want) {
				want = next
			}
			if got := after.newest(first, now); !got.Equal(want) {
				t.Errorf("%s: newest at %v = %v, want %v", expr, now, got, want)
			}
		}
	}
}

func TestFindZone(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"Europe/Berlin": "Europe/Berlin", "europe/berlin": "Europe/Berlin",
		"berlin": "Europe/Berlin", "new york": "America/New_York", "UTC": "UTC",
		" Asia/Kathmandu ": "Asia/Kathmandu",
	} {
		if loc, err := FindZone(name); err != nil || loc.String() != want {
			t.Errorf("FindZone(%q) = %v, %v; want %s", name, loc, err, want)
		}
	}
	for name, want := range map[string]string{
		"Europe/Berln": "did you mean Europe/Berlin?", "berlni": "did you mean Europe/Berlin?",
		"Atlantis/Capital": "such as", "": "such as", "Local": "there is no",
		"../etc/passwd": "no time", "CEST": "use a name", "EST": "use a name", "UTC+2": "use a name",
	} {
		if loc, err := FindZone(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("FindZone(%q) = %v, %v; want an error with %q", name, loc, err, want)
		}
	}
	for name := range strings.FieldsSeq(zoneNames) {
		if _, err := time.LoadLocation(name); err != nil {
			t.Errorf("the list has a zone that is not known: %v", err)
		}
	}
}

func TestShowZone(t *testing.T) {
	t.Parallel()
	for loc, want := range map[*time.Location]string{
		time.Local: "the zone of this machine", time.UTC: "UTC",
		zone(t, "Europe/Berlin"): "Europe/Berlin",
	} {
		if got := ShowZone(loc); got != want {
			t.Errorf("ShowZone(%v) = %q, want %q", loc, got, want)
		}
		w, err := ParseCron("0 9 * * 1", loc)
		if want = "at 0 9 * * 1 (" + want + ")"; err != nil || w.String() != want {
			t.Errorf("a job is described as %q, %v; want %q", w, err, want)
		}
	}
}

// TestStored checks that encoded times are the same after decoding.
func TestStored(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 14, 30, 0, 123e6, zone(t, "Asia/Kathmandu"))
	at, err := ParseAt("in 20m", now, now.Location())
	if err != nil {
		t.Fatal(err)
	}
	every, err := ParseEvery("90m", now, 0)
	if err != nil {
		t.Fatal(err)
	}
	cron, err := ParseCron("0 9 * * 1", now.Location())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []When{at, every, cron} {
		text, err := w.encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := make(zoneCache).decode(text)
		if err != nil || back.String() != w.String() ||
			fmt.Sprint(times(back, now, 3, time.UTC)) != fmt.Sprint(times(w, now, 3, time.UTC)) {
			t.Errorf("%v is %v (%v) when it was read again", w, back, err)
		}
	}
	if w, err := make(zoneCache).decode(`{"cron":"0 9 * * *","zone":"Nowhere/Land"}`); err == nil {
		t.Errorf("a zone that is not known is %v", w)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"0 9 * * *", "in 20m to call", "every monday at 8:00 x", "9am",
		"*/5,1-3/2 L 1,15W jan 5#2", "@daily", "every 2h x", "2026-11-22T09:00:00Z"} {
		f.Add(text)
	}
	now := time.Date(2026, 11, 21, 14, 30, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		cron, errCron := ParseCron(text, time.UTC)
		at, errAt := ParseAt(text, now, time.UTC)
		every, errEvery := ParseEvery(text, now, time.Minute)
		wish, _, errWish := ParseReminder(text, now, time.UTC, time.Minute)
		for i, w := range []When{cron, at, every, wish} {
			if []error{errCron, errAt, errEvery, errWish}[i] != nil {
				if !w.IsZero() {
					t.Errorf("%q is refused and %v", text, w)
				}
				continue
			}
			next, ok := w.Next(now)
			if ok && (!next.After(now) || next.Year() > lastYear) || !ok && i > 0 {
				t.Errorf("%q: Next = %v, %v", text, next, ok)
			}
			stored, err := w.encode()
			if err != nil {
				t.Fatal(err)
			}
			if back, err := make(zoneCache).decode(stored); err != nil || back.String() != w.String() {
				t.Errorf("%q: %v is %v (%v) when it was read again", text, w, back, err)
			}
		}
	})
}
