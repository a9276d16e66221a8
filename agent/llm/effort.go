package llm

// An Effort says how long a model thinks before it answers.
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

// Efforts returns the efforts that m understands, in their order; nil if there are none. A model
// ignores any other effort.
func Efforts(m Model) []Effort {
	if t, ok := m.(interface{ Efforts() []Effort }); ok {
		return t.Efforts()
	}
	return nil
}
