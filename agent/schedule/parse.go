package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gateway/store/plaintext"
)

// maxSpan is the greatest interval.
const maxSpan = 10 * 366 * 24 * time.Hour

// Parts of regular expressions for people's input in lower case.
const (
	unitPattern = `(?:weeks?|w|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)`
	spanPattern = `\d{1,9}\s*` + unitPattern +
		`\s*(?:(?:and\s+)?\d{1,9}\s*` + unitPattern + `\s*)*`
	timePattern = `\d{1,2}(?::\d{2}(?:\s*` + halfPattern + `)?|\s*` + halfPattern + `)`
	halfPattern = `[ap](?:m|\.\s?m\.?)` // of the day
	weekdays    = `(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?`
	datePattern = `\d{4}-\d{2}-\d{2}`
	dateClock   = `(?:\d{1,2}:\d{2}:\d{2}|` + timePattern + `)`
	months      = `(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*`
	dayPattern  = `(?:today|tomorrow|` + weekdays + `)`
)

var (
	spanPart  = plaintext.Pattern(`(\d{1,9})\s*(` + unitPattern + `)`)
	spanWhole = plaintext.Pattern(`^` + spanPattern + `$`)
	dayTime   = plaintext.Pattern(`^(?:(` + dayPattern + `)\s+)?(?:at\s+)?(` + timePattern + `)$`)
	dateTime  = plaintext.Pattern(
		`^(` + datePattern + `)(?:\s+at\s+|\s*t\s*|\s+)(` + dateClock + `)$`)
	clockTime = plaintext.Pattern(`^(\d{1,2})(?::(\d{2}))?\s*(?:([ap])(?:m|\.\s?m\.?))?$`)
)

// units has the units by their first letters. The m stands for minutes; there are no months,
// because they differ in length.
var units = map[byte]time.Duration{'w': 7 * 24 * time.Hour, 'd': 24 * time.Hour, 'h': time.Hour,
	'm': time.Minute, 's': time.Second}

// parseSpan parses a duration such as 90m, "1h 30m" or "2 days".
func parseSpan(text string) (time.Duration, error) {
	if !spanWhole().MatchString(text) {
		return 0, fmt.Errorf("%q is not a length of time: want one such as 90m, 1h30m, 1d or 2w",
			plaintext.Clip(text, 40))
	}
	var sum time.Duration
	for _, m := range spanPart().FindAllStringSubmatch(text, -1) {
		n, err := strconv.Atoi(m[1])
		unit := units[m[2][0]]
		if err != nil || time.Duration(n) > maxSpan/unit {
			return 0, fmt.Errorf("%q is more than 10 years", plaintext.Clip(text, 40))
		}
		if sum += time.Duration(n) * unit; sum > maxSpan {
			return 0, fmt.Errorf("%q is more than 10 years", plaintext.Clip(text, 40))
		}
	}
	return sum, nil
}

// ParseEvery returns the interval that text names, such as "90m", "1h30m", "1d" or "2w". Its times
// are all whole numbers of intervals after anchor. It must not be shorter than least.
func ParseEvery(text string, anchor time.Time, least time.Duration) (When, error) {
	d, err := parseSpan(strings.TrimPrefix(strings.ToLower(strings.TrimSpace(text)), "every "))
	if err != nil {
		return When{}, err
	}
	if d < max(least, time.Second) {
		return When{}, fmt.Errorf("every %s is too often: want %s at least", span(d),
			span(max(least, time.Second)))
	}
	return When{every: d, anchor: anchor.UnixMilli(), loc: anchor.Location()}, nil
}

// errAt explains how to write a time.
var errAt = errors.New(`want one such as "in 20m", "09:00", "tomorrow 09:00", "monday 9am", ` +
	`"2026-11-22 09:00" or "2026-11-22T09:00:00+01:00"`)

// ParseAt returns the single time that text names: RFC 3339, or in the zone loc "2026-11-22 09:00",
// "09:00" (the next one), "tomorrow 09:00" or "monday 9am", or "in 20m" or "20 minutes". It must be
// after now. ParseAt treats changes of the clock like [ParseCron].
func ParseAt(text string, now time.Time, loc *time.Location) (When, error) {
	now = now.In(loc)
	text = strings.ToLower(strings.Join(strings.Fields(text), " "))
	text = strings.TrimPrefix(strings.TrimPrefix(text, "on "), "at ")
	t, err := parseTime(text, now)
	switch {
	case err != nil:
		return When{}, fmt.Errorf("%q is not a time: %w", plaintext.Clip(text, 60), err)
	case !t.After(now):
		return When{}, fmt.Errorf("%s is over: it is %s now", t.In(loc).Format(shown),
			now.Format(shown))
	case t.Year() > lastYear:
		return When{}, fmt.Errorf("%d is too far away: want a year up to %d", t.Year(), lastYear)
	}
	return When{at: t.UnixMilli(), loc: loc}, nil
}

// parseTime parses the words of a person about a single time. It tries an exact time, a date with a
// time in the zone of now, a span from now, and a time of the day, in this order. text is in lower
// case.
func parseTime(text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00"} {
		if t, err := time.Parse(layout, strings.ToUpper(text)); err == nil {
			return t, nil
		}
	}
	if m := dateTime().FindStringSubmatch(text); m != nil {
		if hour, minute, err := parseClock(m[2]); err == nil {
			m[2] = fmt.Sprintf("%02d:%02d", hour, minute)
		}
		for _, layout := range []string{"2006-01-02 15:04", "2006-01-02 15:04:05"} {
			if wall, err := time.Parse(layout, m[1]+" "+m[2]); err == nil {
				return instant(wall, now.Location()), nil
			}
		}
		return time.Time{}, errors.New("there is no such date or no such time of the day")
	}
	if after := strings.TrimPrefix(text, "in "); spanWhole().MatchString(after) {
		d, err := parseSpan(after)
		return now.Add(d), err
	}
	m := dayTime().FindStringSubmatch(text)
	if m == nil {
		return time.Time{}, errAt
	}
	return nextTime(m[1], m[2], now)
}

// nextTime returns the next occurrence of a clock time on a day, such as "tomorrow",
// "monday" or "".
func nextTime(day, clock string, now time.Time) (time.Time, error) {
	hour, minute, err := parseClock(clock)
	if err != nil {
		return time.Time{}, err
	}
	y, m, d := now.Date()
	// A weekday may be today at a time that is over, and then comes in a week.
	for ahead := range 9 {
		wall := time.Date(y, m, d+ahead, hour, minute, 0, 0, time.UTC)
		t := instant(wall, now.Location())
		switch day {
		case "today":
			return t, nil // the caller reports a time in the past
		case "tomorrow":
			if ahead == 1 {
				return t, nil
			}
		case "":
			if t.After(now) {
				return t, nil
			}
		default:
			if t.After(now) && wall.Weekday() == weekday(day) {
				return t, nil
			}
		}
	}
	return time.Time{}, errAt // not reached: a week has all weekdays
}

// weekday returns the weekday whose first three letters are those of name.
func weekday(name string) time.Weekday {
	return time.Weekday(slices.Index([]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"},
		name[:3]))
}

// parseClock parses 9:00, 21:30, 9am, 9:30 pm or 9 p.m.
func parseClock(text string) (hour, minute int, err error) {
	m := clockTime().FindStringSubmatch(text)
	if m == nil {
		return 0, 0, errAt
	}
	// The pattern guarantees digits.
	hour, _ = strconv.Atoi(m[1])
	minute, _ = strconv.Atoi(cmp.Or(m[2], "0"))
	switch {
	case m[3] != "" && (hour < 1 || hour > 12), hour > 23, minute > 59:
		return 0, 0, errors.New("there is no such time of the day")
	case m[3] == "a" && hour == 12:
		hour = 0
	case m[3] == "p" && hour != 12:
		hour += 12
	}
	return hour, minute, nil
}

// Words that a request may begin with.
var (
	everyDay = plaintext.Pattern(`(?i)^every\s+(day|weekday|` + weekdays +
		`(?:(?:\s*,\s*|\s+and\s+)` + weekdays + `)*)\s+(?:at\s+)?(` + timePattern + `)(?:\s+|$)`)
	everySpan = plaintext.Pattern(`(?i)^every\s+(` + spanPattern + `|` + unitPattern +
		`)(?:\s+|$)`)
	atTime = plaintext.Pattern(`(?i)^((?:in\s+)` + spanPattern + `|` +
		`(?:on\s+)?` + datePattern + `(?:\s+at\s+|t|\s+)` + dateClock +
		`(?:z|[+-]\d{2}:\d{2})?|` +
		`(?:on\s+)?(?:` + dayPattern + `\s+)?(?:at\s+)?` + timePattern + `)(?:\s+|$)`)
	anyDay = plaintext.Pattern(weekdays)
)

// Words after a time that belong to it for a person. A clock time does so after days or weeks.
var (
	ofDays    = plaintext.Pattern(`(?i)(?:weeks?|w|days?|d)\s*$`)
	clockNext = plaintext.Pattern(`(?i)^(?:(?:on\s+)?` + dayPattern + `\s+)?(?:at\s+)?` +
		timePattern + `(?:\s|$)`)
	timeNext = plaintext.Pattern(
		`(?i)^and\s+(?:at\s+)?(?:` + timePattern + `|` + weekdays + `)(?:\s|$)`)
	clockOnly = plaintext.Pattern(`(?i)^(?:at\s+)?` + timePattern + `$`)
	dayNext   = plaintext.Pattern(`(?i)^(?:(?:on\s+)?(?:` + dayPattern + `|` + datePattern + `)|` +
		`every\s+(?:` +
		spanPattern + `|day|weekday|` + unitPattern + `|` + weekdays + `))(?:[\s,]|$)`)
	// These words would change the time, but the gateway does not know them.
	otherNext = plaintext.Pattern(`^(?i:tonight|at\s+night|` +
		`(?:in\s+the|this|tomorrow|every)\s+(?:afternoon|evening|night)|` +
		`next\s+(?:week|month|year|` + weekdays + `)|` +
		`(?:on\s+)?(?:the\s+)?(?:` + months + `\.?\s+\d{1,2}|\d{1,2}\.?\s+` + months +
		`)(?:st|nd|rd|th)?|(?:on\s+)?the\s+\d{1,2}(?:st|nd|rd|th)|` +
		`on\s+\d{1,2}[./]\d{1,2}[./]?(?:\d{4})?)(?:[\s,]|$)|` +
		`^(?:UTC|GMT|CES?T|[ECMP][SD]T|BST|IST|JST)(?:[\s,]|$)`)
	clockLast = plaintext.Pattern(`(?i)` + timePattern + `$`)
)

// checkRest returns an error if rest, the words after a time, begins with a second time or with the
// day of the time. Otherwise the reminder would come at another time than the person means.
func checkRest(when, rest string) error {
	when = strings.TrimSpace(when)
	if day := dayNext().FindString(rest); day != "" && clockOnly().MatchString(when) {
		return fmt.Errorf("%q comes before %q: write the day first, such as \"tomorrow 9:00\" or "+
			"\"every monday at 8:00\"", when, strings.Trim(day, " ,"))
	}
	if word := otherNext().FindString(rest); word != "" && clockLast().MatchString(when) {
		return fmt.Errorf("%q after %q is not understood: write the time like 21:00, in your own time "+
			"zone, and the day before it, such as \"2027-01-31 21:00\"", strings.Trim(word, " ,"),
			plaintext.Clip(when, 60))
	}
	second := timeNext().FindString(rest)
	if second == "" && ofDays().MatchString(when) {
		second = clockNext().FindString(rest)
	}
	if second == "" {
		return nil
	}
	return fmt.Errorf("%q and %q are two times: want one, such as \"every day at 8:00\" or "+
		"\"2027-01-31 18:30\"", plaintext.Clip(when, 60), strings.TrimSpace(second))
}

// ParseReminder splits the request of a person into its time and the text of the reminder. Examples
// are "in 20m to call mum", "tomorrow at 9:00 …", "every 2h …" and "every monday and friday at 8am
// …".
func ParseReminder(text string, now time.Time, loc *time.Location, least time.Duration) (
	w When, rest string, err error,
) {
	text = strings.TrimSpace(text)
	if m := everyDay().FindStringSubmatch(text); m != nil {
		rest = text[len(m[0]):]
		w, err = parseDays(strings.ToLower(m[1]), strings.ToLower(m[2]), loc)
	} else if m := everySpan().FindStringSubmatch(text); m != nil {
		rest = text[len(m[0]):]
		every := m[1]
		if every[0] < '0' || every[0] > '9' {
			every = "1" + every
		}
		w, err = ParseEvery(every, now.In(loc), least)
	} else if m := atTime().FindStringSubmatch(text); m != nil {
		rest = text[len(m[0]):]
		w, err = ParseAt(m[1], now, loc)
	} else {
		return w, "", errors.New("it does not begin with a time")
	}
	rest = strings.TrimSpace(rest)
	if err == nil {
		err = checkRest(text[:len(text)-len(rest)], rest)
	}
	if err != nil {
		return When{}, "", err
	}
	for _, word := range []string{"to ", "that "} {
		if len(rest) > len(word) && strings.EqualFold(rest[:len(word)], word) {
			rest = strings.TrimSpace(rest[len(word):])
			break
		}
	}
	return w, rest, nil
}

// parseDays returns a When with a clock time on some days of the week.
func parseDays(days, clock string, loc *time.Location) (When, error) {
	hour, minute, err := parseClock(clock)
	if err != nil {
		return When{}, err
	}
	on := "*"
	switch days {
	case "day":
	case "weekday":
		on = "1-5"
	default:
		var list []string
		for _, name := range anyDay().FindAllString(days, -1) {
			list = append(list, strconv.Itoa(int(weekday(name))))
		}
		on = strings.Join(list, ",")
	}
	return ParseCron(fmt.Sprintf("%d %d * * %s", minute, hour, on), loc)
}
