package screen

// A State is what the gateway says of itself and of the conversation.
type State struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Home    string `json:"home"`

	Model      string  `json:"model"`
	Demo       bool    `json:"demo,omitempty"`     // Model is the built-in one
	Context    int     `json:"context"`            // tokens of the next prompt
	MaxContext int     `json:"max_context"`        // tokens that it may have
	Cost       float64 `json:"cost"`               // dollars, of the conversation
	Queue      string  `json:"queue"`              // what happens to messages during an answer
	Waiting    int     `json:"waiting"`            // messages
	Asks       bool    `json:"asks,omitempty"`     // the agent waits for an answer or an approval
	WillAsk    bool    `json:"will_ask,omitempty"` // what it asks is not sent yet
	Halted     bool    `json:"halted,omitempty"`
	Idle       bool    `json:"idle,omitempty"` // all that was said is answered

	Accounts  []Account  `json:"accounts,omitempty"` // but the terminal's
	Strangers []Stranger `json:"strangers,omitempty"`
	Commands  []Command  `json:"commands,omitempty"`
}

// An Account is one on a platform.
type Account struct {
	Name string `json:"name"`
	Up   bool   `json:"up"`
	Text string `json:"text"` // for example "connected as @bot"
}

// A Stranger waits to be let in.
type Stranger struct {
	Name    string `json:"name"`
	Account string `json:"account"`
	Code    string `json:"code"`
}

// A Command is one that the gateway knows.
type Command struct {
	Name string `json:"name"` // without "/"
	Help string `json:"help"`
}

// A Button is below a message. Pressing it sends its Text.
type Button struct {
	Label  string `json:"label"`
	Text   string `json:"text"`
	Number int    `json:"number,omitempty"` // of an answer to a question
}

// What the gateway sends to a [Model].
type (
	// Message is a message to the person. It grows until it is Done.
	Message struct {
		ID, Text string
		Buttons  []Button
		Done     bool     // Text and Buttons have not changed, and are left out
		Answers  []string // with Done: what was said that it answers
	}

	// Said is what the person has said at another screen.
	Said string

	// Files are the names of files that begin with Prefix.
	Files struct {
		Prefix string
		Names  []string
	}

	// Lost says that the connection to the gateway has ended, and Joined that it is there again.
	Lost   struct{ Reason string }
	Joined struct{}

	// Log is a part of the log.
	Log string

	// Drawn says that the screen was drawn for the first time. Nothing is printed before.
	Drawn struct{}

	// End ends the program.
	End struct{}
)

// A Gateway is the other end of the conversation. Its methods return at once.
type Gateway interface {
	// Say sends a message. If it is literal it is not a command.
	Say(id, text string, literal bool)

	// AskState asks for a [State].
	AskState()

	// AskFiles asks for [Files].
	AskFiles(prefix string)
}
