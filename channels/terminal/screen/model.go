// Package screen is what a person at a terminal sees of the conversation, and types into.
//
// A [Model] is a program of Bubble Tea: a value that messages change and that says how the screen
// looks. Its messages are keys, what the gateway sends, and the clock; what it says goes to a
// [Gateway]. It knows neither connections nor files but for the history of what was sent.
//
// What is complete scrolls away as text of the terminal. The rows below it change: what grows, what
// the agent is doing, the editor and the status line.
package screen

import (
	"cmp"
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"charm.land/bubbles/v2/spinner"
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
)

// Options say how a [Model] works. Gateway is required.
type Options struct {
	Gateway Gateway
	History string // path of the file with what was sent; "" keeps it in memory

	Width, Height int // of the terminal; 0: 80 by 24

	// Owned says that the gateway ends with the chat, unless the person keeps it running.
	Owned bool

	Now func() time.Time // default [time.Now]
}

// A Model is the state of the screen.
type Model struct {
	opts Options
	*look
	input
	printer

	talk    talk
	state   *State // nil until the gateway has told it
	offline string // why there is no connection, or ""
	spinner spinner.Model
	since   time.Time // when the person began to wait
	leaving bool      // the person is asked whether the gateway goes on
	end     outcome
}

// An outcome is how the program ends.
type outcome struct {
	wanted bool // it ends as soon as all is printed
	stay   bool // the gateway goes on
}

// New returns a Model, and why the history can't be read, which is no reason not to talk.
func New(opts Options) (*Model, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	h, err := openHistory(opts.History)
	l := &look{width: cmp.Or(opts.Width, 80), height: cmp.Or(opts.Height, 24),
		profile: colorprofile.NoTTY}
	return &Model{opts: opts, look: l, talk: newTalk(),
		input:   input{look: l, gateway: opts.Gateway, history: h, known: ownCommands},
		printer: printer{emit: emit},
		spinner: spinner.New(spinner.WithSpinner(spinner.MiniDot))}, err
}

// Stays reports whether the gateway goes on after the chat.
func (m *Model) Stays() bool { return m.end.stay }

// Busy reports whether an answer is under way.
func (m *Model) Busy() bool { return m.talk.waits() }

// Left returns what was to be printed and was not yet.
func (m *Model) Left() string { return strings.Join(m.queue, "\n") }

// stateTime and restTime are how often the state is asked for, during an answer and at rest.
const (
	stateTime = 2 * time.Second
	restTime  = 10 * time.Second
)

// stateDue is when the state is asked for again.
type stateDue struct{}

func (m *Model) askLater() tea.Cmd {
	wait := restTime
	if m.talk.waits() || m.state == nil || slices.ContainsFunc(m.state.Accounts, down) {
		wait = stateTime
	}
	return tea.Tick(wait, func(time.Time) tea.Msg { return stateDue{} })
}

// Init implements [tea.Model].
func (m *Model) Init() tea.Cmd {
	m.opts.Gateway.AskState()
	return m.askLater()
}

// Update implements [tea.Model].
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	waited := m.talk.waits()
	cmd := m.update(msg)
	if !waited && m.talk.waits() {
		m.since = m.opts.Now()
		cmd = tea.Batch(cmd, m.spinner.Tick)
	}
	if waited && !m.talk.waits() {
		m.opts.Gateway.AskState()
	}
	return m, tea.Batch(cmd, m.print())
}

func (m *Model) update(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(msg.Width, 4), max(msg.Height, 4)
	case tea.ColorProfileMsg:
		m.profile = msg.Profile
	case tea.ModeReportMsg:
		if msg.Mode == ansi.ModeUnicodeCore && !msg.Value.IsNotRecognized() {
			m.method = ansi.GraphemeWidth
		}
	case tea.KeyPressMsg:
		return m.key(msg)
	case tea.PasteMsg:
		m.finding, m.leaving = nil, false
		m.editor.insert(msg.Content, true)
		m.suggest()
	case spinner.TickMsg:
		if m.talk.waits() {
			var cmd tea.Cmd
			m.spinner, cmd = m.spinner.Update(msg)
			return cmd
		}
	case stateDue:
		m.opts.Gateway.AskState()
		return m.askLater()
	case Drawn:
		m.drawn = true
	case printed:
		m.printing = false
	case End:
		m.end.wanted = true
	default:
		m.hear(msg)
	}
	return nil
}

// hear takes what the gateway sends.
func (m *Model) hear(msg tea.Msg) {
	switch msg := msg.(type) {
	case Message:
		if done := m.talk.grow(msg); done != nil {
			m.add(m.answer(done.text, done.buttons))
		}
	case Said:
		m.talk.decided(string(msg))
		m.add(m.own(string(msg)))
	case *State:
		m.take(msg)
	case Files:
		m.files(msg)
	case Lost:
		for _, text := range m.talk.lose() {
			m.add(m.answer(text, nil))
		}
		m.offline = msg.Reason
	case Joined:
		if m.offline != "" {
			m.add(paint(notice, "Connected again."))
		}
		m.offline = ""
		m.opts.Gateway.AskState()
	case Log:
		m.add(m.wrap(strings.TrimRight(string(msg), "\n")))
	}
}

// take shows a new state: at first all of it, later which accounts have come or gone, and who else
// asks to be let in.
func (m *Model) take(s *State) {
	old := m.state
	if s.Idle {
		m.talk.idle()
	}
	m.state, m.known = s, slices.Concat(s.Commands, ownCommands)
	m.suggest()
	if old == nil {
		m.queue = append(m.queue, panel{m.look, s, m.opts.Owned}.start()...)
		return
	}
	for _, a := range s.Accounts {
		if !slices.ContainsFunc(old.Accounts, a.same) {
			m.add(m.wrap(describe(a)))
		}
	}
	for _, who := range s.Strangers {
		if !slices.Contains(old.Strangers, who) {
			m.add(paint(warning, m.wrap("! "+waits(who))))
		}
	}
}

func down(a Account) bool { return !a.Up }

// same reports whether a person is told the same of both.
func (a Account) same(b Account) bool { return a.Name == b.Name && a.Up == b.Up }

// say sends a message.
func (m *Model) say(text string, literal bool) {
	id := rand.Text()
	m.talk.say(id, text)
	m.add(m.own(text))
	m.opts.Gateway.Say(id, text, literal)
}

// send sends what is in the editor, or does what it says.
func (m *Model) send() tea.Cmd {
	text, literal := strings.TrimSpace(m.editor.value()), m.editor.literal()
	m.editor.set("")
	m.suggest()
	if text == "" {
		return nil
	}
	if err := m.history.add(text); err != nil {
		m.add(paint(warning, m.wrap("What you send is not kept: "+err.Error())))
		m.history.path = ""
	}
	if !literal {
		switch text {
		case "/exit", "/quit", "exit", "quit":
			m.leave()
			return nil
		case "/clear":
			return tea.ClearScreen
		}
	}
	if i := m.talk.chosen(text); i >= 0 && !literal {
		text = m.talk.choices[i].Text
	}
	if len(text) > MaxText {
		m.add(paint(warning, m.wrap("That is too long for one message. Put it into a file.")))
		return nil
	}
	m.say(text, literal)
	return nil
}

// MaxText is the longest message, in bytes.
const MaxText = 1 << 20

// leave ends the chat, or asks first what becomes of the gateway.
func (m *Model) leave() {
	if m.opts.Owned && m.state != nil && len(m.state.Accounts) > 0 {
		m.leaving = true
		return
	}
	m.end.wanted = true
}

// A printer has what is to be printed above the rows that change.
//
// That is done piece by piece: a
// piece that does not fit above them would push them away, and they would stay there twice.
type printer struct {
	queue    []string // rows
	drawn    bool     // before, Bubble Tea does not know where it can print
	printing bool
	emit     func(text string) tea.Cmd
}

// printed says that a piece is on the screen.
type printed struct{}

// add prints text below all that was printed.
func (p *printer) add(text string) { p.queue = append(p.queue, strings.Split(text, "\n")...) }

// print returns what prints the next piece, or ends the program when there is none.
func (m *Model) print() tea.Cmd {
	switch {
	case m.end.wanted && (len(m.queue) == 0 || !m.drawn):
		return tea.Quit
	case len(m.queue) == 0 || m.printing || !m.drawn:
		return nil
	}
	n := min(len(m.queue), max(m.height-m.most()-1, 1))
	text := m.colored(strings.Join(m.queue[:n], "\n"))
	if text == "" {
		text = " " // nothing would be printed
	}
	m.queue, m.printing = m.queue[n:], true
	return m.emit(text)
}

// emit prints text, and says so.
func emit(text string) tea.Cmd {
	return tea.Sequence(tea.Println(text), func() tea.Msg { return printed{} })
}
