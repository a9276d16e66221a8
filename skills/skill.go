package skills

// A Source is the origin of a skill.
type Source string

// The sources of skills.
const (
	Shared  Source = "shared"  // kept by the owner, in skills/NAME
	Builtin Source = "builtin" // part of the gateway
	Found   Source = "found"   // found in conversations, private to one memory scope
)

// A Skill describes a skill without the full text.
type Skill struct {
	Name        string // unique in a list, except for skills with a Problem
	Description string // one line, without control characters
	Location    string // path by which the model reads its SKILL.md
	Source      Source
	Scope       string // owner of a found skill
	Folder      string // name of its folder

	Always   bool     // its text is part of each prompt
	Manual   bool     // hidden from the model: used only when a message mentions it
	Disabled bool     // disabled in the configuration
	Missing  []string // descriptions of missing requirements
	Problem  string   // why it can't be used at all
	Remarks  []string // oddities that do not prevent its use

	Requires      Requires
	License       string
	Compatibility string
	AllowedTools  string // as the author requested; it grants nothing

	file string // name of its SKILL.md file
}

// Requires lists the requirements of a skill.
type Requires struct {
	Bins    []string // programs; all are needed
	AnyBins []string // programs; one is needed
	Env     []string // environment variables
	OS      []string // operating systems as in runtime.GOOS; one is needed
	Config  []string // settings of the gateway
	Skills  []string // other skills; all are needed
}

// Available reports whether the skill can be used now.
func (s Skill) Available() bool {
	return s.Problem == "" && !s.Disabled && len(s.Missing) == 0
}
