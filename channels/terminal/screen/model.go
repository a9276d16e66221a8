// Package screen shows the conversation to a person at a terminal and reads what they type.
//
// A [Model] is a program of Bubble Tea: messages change its state, and the state determines the
// screen. Its messages are keys, data from the gateway, and the clock. It sends its own messages to
// a [Gateway]. It uses neither connections nor files, except for the history of sent messages.
//
// Complete messages scroll away as text of the terminal. The rows below them change: growing
// messages, what the agent is doing, the editor and the status line.
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

// Options are the settings of a [Model]. Gateway is required.
type Options struct {
	Gateway Gateway
	History string // path of the file with sent messages; "" keeps them in memory

	Width, Height int // of the terminal; 0 means 80 by 24

	// Owned says that the gateway ends with the chat unless the person keeps it running.
	Owned bool

	Now func() time.Time // default [time.Now]
}

// A Model is the state of the screen.
type Model struct {
	opts Options
	*terminal
	input
	printer

	talk    talk
	state   *State // nil before the gateway has sent it
	offline string // why there is no connection, or ""
	spinner spinner.Model
	since   time.Time // when the person began to wait
	leaving bool      // the person is being asked whether the gateway should continue
	end     outcome
}

// An outcome says how the program ends.
type outcome struct {
	wanted bool // end as soon as everything is printed
	stay   bool // the gateway continues
}

// New returns a Model. If the history can't be read, it also returns an error, but the Model is
// usable.
func New(opts Options) (*Model, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	h, err := openHistory(opts.History)
	l := &terminal{width: cmp.Or(opts.Width, 80), height: cmp.Or(opts.Height, 24),
		profile: colorprofile.NoTTY}
	return &Model{opts: opts, terminal: l, talk: newTalk(),
		input:   input{look: l, gateway: opts.Gateway, history: h, known: ownCommands},
		printer: printer{emit: emit},
		spinner: spinner.New(spinner.WithSpinner(spinner.MiniDot))}, err
}

// Stays reports whether the gateway continues after the chat.
func (m *Model) Stays() bool { return m.end.stay }

// Busy reports whether an answer is under way.
func (m *Model) Busy() bool { return m.talk.isAnswerPending() }

// Left returns text that has not been printed yet.
func (m *Model) Left() string { return strings.Join(m.queue, "\n") }

// stateTime and restTime are the intervals between requests for the state, during an answer and
// otherwise.
const (
	stateTime = 2 * time.Second
	restTime  = 10 * time.Second
)

// stateDue is sent when the next request for the state is due.
type stateDue struct{}

// askLater returns the command that makes stateDue come. It comes sooner while something is under
// way.
func (m *Model) askLater() tea.Cmd {
	wait := restTime
	if m.talk.isAnswerPending() || m.state == nil || slices.ContainsFunc(m.state.Accounts, down) {
		wait = stateTime
	}
	return tea.Tick(wait, func(time.Time) tea.Msg { return stateDue{} })
}

// Init implements [tea.Model].
func (m *Model) Init() tea.Cmd {
	m.opts.Gateway.AskState()
	return m.askLater()
}

// Update implements [tea.Model]. Bubble Tea calls it on one goroutine, so the Model needs no locks.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	waited := m.talk.isAnswerPending()
	cmd := m.update(msg)
	if !waited && m.talk.isAnswerPending() {
		m.since = m.opts.Now()
		cmd = tea.Batch(cmd, m.spinner.Tick)
	}
	if waited && !m.talk.isAnswerPending() {
		m.opts.Gateway.AskState()
	}
	return m, tea.Batch(cmd, m.print())
}

// update handles msg. Update does what is due after any message.
func (m *Model) update(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(msg.Width, 4), max(msg.Height, 4)
	case tea.ColorProfileMsg:
		m.profile = msg.Profile
	case tea.ModeReportMsg:
		// Such a terminal counts columns by clusters, not by code points.
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
		if m.talk.isAnswerPending() {
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
		m.receive(msg)
	}
	return nil
}

// receive handles data from the gateway.
func (m *Model) receive(msg tea.Msg) {
	switch msg := msg.(type) {
	case Message:
		if done := m.talk.grow(msg); done != nil {
			m.add(m.answer(done.text, done.buttons))
		}
	case OtherScreenMessage:
		m.talk.decided(string(msg))
		m.add(m.own(string(msg)))
	case *State:
		m.setState(msg)
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

// setState shows a new state: the first one completely, later ones only as far as accounts have
// connected or disconnected, or strangers have asked for approval.
func (m *Model) setState(s *State) {
	old := m.state
	if s.Idle {
		m.talk.idle()
	}
	m.state, m.known = s, slices.Concat(s.Commands, ownCommands)
	m.suggest()
	if old == nil {
		m.add(panel{m.terminal, s, m.opts.Owned}.start())
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

// down reports whether an account is not connected.
func down(a Account) bool { return !a.Up }

// same reports whether a and b look the same to a person.
func (a Account) same(b Account) bool { return a.Name == b.Name && a.Up == b.Up }

// say sends a message.
func (m *Model) say(text string, literal bool) {
	id := rand.Text()
	m.talk.say(id, text)
	m.add(m.own(text))
	m.opts.Gateway.Send(id, text, literal)
}

// send sends the text in the editor, or executes it.
func (m *Model) send() tea.Cmd {
	text, literal := strings.TrimSpace(m.editor.value()), m.editor.literal()
	m.editor.set("")
	m.suggest()
	if text == "" {
		return nil
	}
	if err := m.history.add(text); err != nil {
		m.add(paint(warning, m.wrap("Your messages are not kept in the history: "+err.Error())))
		// The warning is shown once. Later messages stay in memory.
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

// leave ends the chat. If necessary, it first asks whether the gateway should continue.
func (m *Model) leave() {
	if m.opts.Owned && m.state != nil && len(m.state.Accounts) > 0 {
		m.leaving = true
		return
	}
	m.end.wanted = true
}

// A printer holds the text to print above the changing rows. It prints piece by piece: a piece that
// does not fit above those rows would push them up, and they would appear twice.
type printer struct {
	queue    []string // rows to print
	drawn    bool     // before that, Bubble Tea does not know where to print
	printing bool
	emit     func(text string) tea.Cmd
}

// printed is sent when a piece is on the screen.
type printed struct{}

// add adds text to print.
func (p *printer) add(text string) { p.queue = append(p.queue, strings.Split(text, "\n")...) }

// print returns the command that prints the next piece, or ends the program if there is none.
func (m *Model) print() tea.Cmd {
	switch {
	case m.end.wanted && (len(m.queue) == 0 || !m.drawn):
		return tea.Quit
	case len(m.queue) == 0 || m.printing || !m.drawn:
		return nil
	}
	n := min(len(m.queue), max(m.height-m.most()-1, 1))
	text := m.colored(strings.Join(m.queue[:n], "\n"))
	text = cmp.Or(text, " ") // empty text would print nothing
	m.queue, m.printing = m.queue[n:], true
	return m.emit(text)
}

// emit prints text, and then sends printed.
func emit(text string) tea.Cmd {
	return tea.Sequence(tea.Println(text), func() tea.Msg { return printed{} })
}
