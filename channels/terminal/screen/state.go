package screen

// A State describes the gateway and the conversation.
type State struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Home    string `json:"home"`

	Model      string  `json:"model"`
	Demo       bool    `json:"demo,omitempty"`     // Model is the built-in demo model
	Context    int     `json:"context"`            // size of the next prompt in tokens
	MaxContext int     `json:"max_context"`        // maximum size of a prompt in tokens
	Cost       float64 `json:"cost"`               // of the conversation, in dollars
	Queue      string  `json:"queue"`              // queue mode
	Waiting    int     `json:"waiting"`            // number of waiting messages
	Asks       bool    `json:"asks,omitempty"`     // the agent waits for an answer or an approval
	WillAsk    bool    `json:"will_ask,omitempty"` // its question is not sent yet
	Halted     bool    `json:"halted,omitempty"`
	Idle       bool    `json:"idle,omitempty"` // all messages are answered

	Accounts  []Account  `json:"accounts,omitempty"` // without the terminal's
	Strangers []Stranger `json:"strangers,omitempty"`
	Commands  []Command  `json:"commands,omitempty"`
}

// An Account is an account on a platform.
type Account struct {
	Name string `json:"name"`
	Up   bool   `json:"up"`
	Text string `json:"text"` // for example "connected as @bot"
}

// A Stranger is a person who waits for approval.
type Stranger struct {
	Name    string `json:"name"`
	Account string `json:"account"`
	Code    string `json:"code"`
}

// A Command is a command of the gateway.
type Command struct {
	Name string `json:"name"` // without "/"
	Help string `json:"help"`
}

// A Button appears below a message. Pressing it sends its Text.
type Button struct {
	Label  string `json:"label"`
	Text   string `json:"text"`
	Number int    `json:"number,omitempty"` // number of an answer to a question, or 0
}

// Messages from the gateway to a [Model].
type (
	// Message is a message to the person. It grows until Done.
	Message struct {
		ID, Text string
		Buttons  []Button
		Done     bool     // Text and Buttons are unchanged and left out
		Answers  []string // with Done: ids of the messages that it answers
	}

	// OtherScreenMessage is a message that the person sent from another screen.
	OtherScreenMessage string

	// Files are the names of files that begin with Prefix.
	Files struct {
		Prefix string
		Names  []string
	}

	// Lost reports that the connection to the gateway has ended; Joined, that it is restored.
	Lost   struct{ Reason string }
	Joined struct{}

	// Log is a piece of the log.
	Log string

	// Drawn reports that the screen was drawn for the first time. Nothing is printed before that.
	Drawn struct{}

	// End ends the program.
	End struct{}
)

// A Gateway is the other end of the conversation. Its methods return immediately.
type Gateway interface {
	// Send sends a message. If literal is true, it is not a command.
	Send(id, text string, literal bool)

	// AskState requests a [State].
	AskState()

	// AskFiles requests [Files].
	AskFiles(prefix string)
}
