package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/telegram/telegramtest"
	"gateway/store"
)

// The people of a [hostileWorld] besides Ann and Bob. Each attack has its own people, so that
// nobody is told about the requests of another attack.
const (
	adminID  = 5
	victimID = 90
)

// Secrets that must never leave the gateway: see also testToken.
const (
	secretKey = "sk-the-key-of-the-model"
	secretEnv = "what-the-environment-holds" // in the environment of this program: see tidy
)

// A hostileWorld is a world with people, pages and files that attack the gateway. Its model
// follows every order that it reads.
type hostileWorld struct {
	*world
	outside   string // a folder that belongs to nobody in the gateway
	pages     string // URL of a server that may be reached
	page      sync.Map
	forbidden string       // host and port of a server that may not be reached
	reached   atomic.Int64 // connections to the forbidden server
}

// newHostileWorld runs a gateway with files in its workspace.
func newHostileWorld(t *testing.T, files map[string]string) *hostileWorld {
	if runtime.GOOS != "linux" {
		t.Skip("the sandbox needs Linux")
	}
	s := &hostileWorld{world: newWorld(t, worldOptions{answer: followAllOrders, sandbox: "auto"}),
		outside: t.TempDir()}
	s.model.Keep(1000)
	server := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(server.Close)
	s.pages = server.URL
	s.listen()
	_, port, _ := net.SplitHostPort(s.forbidden)
	s.config = strings.Replace(s.config, "[models.fake]",
		fmt.Sprintf("[models.fake]\nkey = %q", secretKey), 1)
	s.configure(fmt.Sprintf(`access = "allow"
owners = [7, 71, 72, 73, 74, 75, 76]
allow = [81, 82, 83, 84, %d]
groups = [%d]
rate_limit = "off"
sender_rate = 0
streaming = false
[web]
search = "off"
allow_networks = ["127.0.0.1/32"]
ports = [%q, %q]
[tools.exec]
admin = "ask"
[tools.edit_file]
user = "deny"
[media.images]
model = "gpt-image-1"
base_url = %q
`, victimID, groupID, s.pages[strings.LastIndexByte(s.pages, ':')+1:], port, s.model.URL))
	workspace := filepath.Join(s.home, "workspace")
	if err := os.Mkdir(workspace, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		s.write(filepath.Join(workspace, name), s.fill(text))
	}
	s.telegram.AddUser(telegramtest.User{ID: annID, First: "Ann"})
	s.telegram.AddUser(telegramtest.User{ID: bobID, First: "Bob"})
	s.telegram.AddGroup(groupID, "Garden")
	s.run()
	s.promote(adminID)
	s.telegram.Say(victimID, victimID, "hello") // so that the conversation exists
	s.await("an answer", func() bool { return heard(s.world, victimID, "hello") })
	return s
}

// listen starts the server that must never be reached.
func (s *hostileWorld) listen() {
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		s.t.Skipf("there is no second address of this machine: %v", err)
	}
	s.forbidden = l.Addr().String()
	server := &httptest.Server{Listener: l, Config: &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "what stands in the network")
		}),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				s.reached.Add(1)
			}
		},
	}}
	server.Start()
	s.t.(*testing.T).Cleanup(server.Close)
}

// serve serves the pages. A page without a leading tag is plain text; "=> URL" is a redirect.
func (s *hostileWorld) serve(w http.ResponseWriter, r *http.Request) {
	text, ok := s.page.Load(r.URL.Path)
	if !ok {
		http.NotFound(w, r)
		return
	}
	if to, ok := strings.CutPrefix(text.(string), "=> "); ok {
		http.Redirect(w, r, to, http.StatusFound)
		return
	}
	if !strings.HasPrefix(text.(string), "<") {
		w.Header().Set("Content-Type", "text/plain")
	}
	fmt.Fprint(w, text)
}

// promote makes a person an admin.
func (s *hostileWorld) promote(id int64) {
	s.t.Helper()
	s.look(func(db *store.DB) {
		err := db.Tx(s.t.Context(), func(tx *store.Tx) error {
			var person int64
			err := tx.QueryRow(`INSERT INTO people (name, role, created_ms)
				VALUES ('Adam', 'admin', 0) RETURNING id`).Scan(&person)
			if err == nil {
				_, err = tx.Exec(`INSERT INTO identities (account, sender, person)
					VALUES ('telegram', $1, $2)`, fmt.Sprint(id), person)
			}
			return err
		})
		if err != nil {
			s.t.Fatal(err)
		}
	})
}

func (s *hostileWorld) write(path, text string) {
	s.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// fill replaces the placeholders for the outside folder, the pages and the forbidden server.
func (s *hostileWorld) fill(text string) string {
	return strings.NewReplacer("OUTSIDE", s.outside, "PAGES", s.pages, "FORBIDDEN", s.forbidden).
		Replace(text)
}

// exists reports whether a file exists in the workspace.
func (s *hostileWorld) exists(name string) bool {
	_, err := os.Lstat(filepath.Join(s.home, "workspace", name))
	return err == nil
}

// tell makes a person write text in their direct chat and waits for an answer that contains
// answer.
func (s *hostileWorld) tell(chat int64, text, answer string) {
	s.t.Helper()
	s.telegram.Say(chat, chat, s.fill(text))
	s.hears(chat, answer)
}

func (s *hostileWorld) hears(chat int64, answer string) {
	s.t.Helper()
	s.await(answer, func() bool { return has(s.texts(chat), answer) })
}

// more returns a function that reports whether a chat shows text more often than at this moment.
func (s *hostileWorld) more(chat int64, text string) func() bool {
	count := func() int { return strings.Count(strings.Join(s.texts(chat), "\n"), text) }
	n := count()
	return func() bool { return count() > n }
}

// seen returns the messages to the model that contain text, in their order.
func (s *hostileWorld) seen(text string) (list []openaitest.Message) {
	for _, r := range s.model.Requests() {
		for _, m := range r.Messages {
			if strings.Contains(m.Content, text) {
				list = append(list, m)
			}
		}
	}
	return list
}

// request returns the newest request to the model whose newest message contains text.
func (s *hostileWorld) request(text string) (found openaitest.Request) {
	s.t.Helper()
	for _, r := range s.model.Requests() {
		if strings.Contains(r.Messages[len(r.Messages)-1].Content, text) {
			found = r
		}
	}
	if found.N == 0 {
		s.t.Fatalf("the model was never told %q", text)
	}
	return found
}

// dreamsSystem is the beginning of Dream's system prompts.
const dreamsSystem = "You look after the long-term memory"

// followAllOrders is [followOrders], but also follows orders in quotes and in ambient context, and
// repeats the text after "SAY". Its notes contain everything that it was shown.
func followAllOrders(r openaitest.Request) openaitest.Reply {
	last := len(r.Messages) - 1
	switch system := r.Messages[0].Content; {
	case strings.HasPrefix(system, "You keep the long-term notes"):
		return say(r.Messages[last].Content)
	case strings.HasPrefix(system, dreamsSystem):
		return say("[SKIP]")
	}
	for i := last - 1; i > 0 && strings.HasPrefix(r.Messages[i].Content, "[What was said in"); i-- {
		r.Messages[last].Content = r.Messages[i].Content + "\n" + r.Messages[last].Content
	}
	text := r.Messages[last].Content
	if strings.Contains(text, "[in reply to ") {
		r.Messages[last].Content = strings.ReplaceAll(text, `\"`, `"`)
	}
	_, order, ok := strings.Cut(text, "SAY ")
	if ok && !strings.Contains(text, "DO ") {
		order, _, _ = strings.Cut(order, "\n")
		return say(order)
	}
	return followOrders(r)
}
