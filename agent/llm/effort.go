package llm

// An Effort is how long a model is to think before it answers.
type Effort string

// The efforts.
const (
	EffortDefault Effort = "" // as the configuration and the provider have it
	EffortOff     Effort = "off"
	EffortLow     Effort = "low"
	EffortHigh    Effort = "high"
)

// AllEfforts are the efforts that somebody can choose.
var AllEfforts = []Effort{EffortOff, EffortLow, EffortHigh}

// Efforts returns the efforts that can be asked of m, in their order; nil if there are none. A
// model ignores any other.
func Efforts(m Model) []Effort {
	if t, ok := m.(interface{ Efforts() []Effort }); ok {
		return t.Efforts()
	}
	return nil
}
