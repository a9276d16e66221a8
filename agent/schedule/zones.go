package schedule

import (
	_ "embed"
	"fmt"
	"strings"
	"time"

	"gateway/agent/suggest"
	"gateway/store/plaintext"
)

// zoneNames are the IANA names that people may mean, one a line.
//
//go:embed zones.txt
var zoneNames string

// FindZone returns the time zone with a name, ignoring case. The name of a city alone is
// enough. The error is for people and suggests the most similar name.
func FindZone(name string) (*time.Location, error) {
	name = strings.ReplaceAll(strings.TrimSpace(name), " ", "_")
	var cities []string
	names := strings.Fields(zoneNames)
	for _, known := range names {
		city := known[strings.LastIndex(known, "/")+1:]
		if strings.EqualFold(known, name) || strings.EqualFold(city, name) {
			return time.LoadLocation(known)
		}
		cities = append(cities, city)
	}
	hint := "use a name such as Europe/Berlin or UTC"
	// "CEST" does not mean Australia/West, and "UTC+2" does not mean UTC.
	if len(name) <= 4 || strings.ContainsAny(name, "0123456789") {
		names, cities = nil, nil
	}
	if meant := suggest.Name(name, names); meant != "" {
		hint = "did you mean " + meant + "?"
	} else if meant := suggest.Name(name, cities); meant != "" {
		for i, city := range cities {
			if city == meant {
				hint = "did you mean " + names[i] + "?"
				break
			}
		}
	}
	return nil, fmt.Errorf("there is no time zone %q; %s", plaintext.Clip(name, 60), hint)
}

// ShowZone returns a zone for people. The default is the zone of the machine, whose name the system
// does not tell programs.
func ShowZone(loc *time.Location) string {
	if loc == time.Local {
		return "the zone of this machine"
	}
	return loc.String()
}
