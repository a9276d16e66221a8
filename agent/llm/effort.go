package llm

// An Effort says how long a model thinks before it answers.
type Effort string

// The efforts a model may support.
const (
	EffortDefault Effort = "" // as configured, or the provider's default
	EffortOff     Effort = "off"
	EffortLow     Effort = "low"
	EffortHigh    Effort = "high"
)

// AllEfforts are the efforts that users can choose.
var AllEfforts = []Effort{EffortOff, EffortLow, EffortHigh}

// Efforts returns the efforts that m supports, in the order of [AllEfforts], or nil. A model
// ignores other efforts.
func Efforts(m Model) []Effort {
	if t, ok := m.(interface{ Efforts() []Effort }); ok {
		return t.Efforts()
	}
	return nil
}
