package skills

// A Source says where a skill comes from.
type Source string

// The sources.
const (
	Shared  Source = "shared"  // kept by the owner, in skills/NAME
	Builtin Source = "builtin" // part of the gateway
	Found   Source = "found"   // found in conversations, private to one memory scope
)

// A Skill is what is known of a skill without reading all of it.
type Skill struct {
	Name        string // what it is called with; unique in a list, apart from those with a Problem
	Description string // one line, without control characters
	Location    string // of its SKILL.md, as the model reads it
	Source      Source
	Scope       string // whose it is, for one that was found
	Folder      string // name of its folder

	Always   bool     // its text is always part of the prompt
	Manual   bool     // the model isn't told of it: somebody has to name it
	Disabled bool     // switched off in the configuration
	Missing  []string // what it requires and is not there, in words
	Problem  string   // why it can't be used at all
	Remarks  []string // what is odd about it, and no obstacle

	Requires      Requires
	License       string
	Compatibility string
	AllowedTools  string // what its author wants allowed; nothing is allowed by it

	file string // name of its SKILL.md
}

// Requires is what a skill needs.
type Requires struct {
	Bins    []string // programs, all of them
	AnyBins []string // programs, one of them
	Env     []string // environment variables
	OS      []string // systems, one of them, as in runtime.GOOS
	Config  []string // settings of the gateway
}

// Available reports whether the skill can be used now.
func (s Skill) Available() bool {
	return s.Problem == "" && !s.Disabled && len(s.Missing) == 0
}
