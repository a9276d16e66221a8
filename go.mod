module gateway

go 1.26.0

require (
	charm.land/bubbles/v2 v2.2.1 // spinner of the terminal
	charm.land/bubbletea/v2 v2.1.1 // the terminal's screen
	charm.land/lipgloss/v2 v2.0.6 // its styles
	codeberg.org/readeck/go-readability/v2 v2.1.3 // the readable part of a web page
	github.com/CycloneDX/cyclonedx-go v0.12.0 // bills of materials of releases
	github.com/JohannesKaufmann/html-to-markdown/v2 v2.5.2 // web pages as Markdown
	github.com/adhocore/gronx v1.20.4 // syntax of cron
	github.com/aymanbagabas/go-udiff v0.4.1 // differences of documents
	github.com/bmatcuk/doublestar/v4 v4.10.4 // patterns of paths, with **
	github.com/bwmarrin/discordgo v0.29.0 // Discord's gateway and REST API
	github.com/charmbracelet/colorprofile v0.4.3 // colours that a terminal has
	github.com/charmbracelet/x/ansi v0.11.9 // widths of text on a terminal
	github.com/charmbracelet/x/termios v0.1.1 // tests: the mode of a terminal
	github.com/coder/websocket v1.8.15 // fake WhatsApp of the tests; whatsmeow brings it
	github.com/creack/pty v1.1.24 // tests: a terminal
	github.com/gabriel-vasile/mimetype v1.4.16 // types of files by content
	github.com/go-telegram-bot-api/telegram-bot-api/v5 v5.5.1 // transport of the Bot API; it ends at version 5.5
	github.com/go-viper/mapstructure/v2 v2.5.0 // strict decoding of the configuration
	github.com/golang-jwt/jwt/v5 v5.3.1 // signed logins of MCP servers
	github.com/google/jsonschema-go v0.4.3 // schemas of tools and their checking
	github.com/gorilla/websocket v1.5.3 // discordgo's; lifted to a version with its fixes
	github.com/klauspost/compress v1.20.4 // archives of OpenClaw
	github.com/knadh/koanf/v2 v2.4.1 // merging of configuration sources
	github.com/landlock-lsm/go-landlock v0.11.2 // sandbox where there is no bubblewrap
	github.com/ledongthuc/pdf v0.0.0-20260907135840-6c8c28e0e8a0 // text of PDF files
	github.com/lmittmann/tint v1.2.1 // log for people
	github.com/modelcontextprotocol/go-sdk v1.8.0 // Model Context Protocol, both sides
	github.com/pelletier/go-toml/v2 v2.4.3 // configuration file, with the lines of mistakes
	github.com/prometheus/client_golang v1.25.0 // metrics
	github.com/prometheus/common v0.72.0 // tests: the form of metrics
	github.com/rivo/uniseg v0.4.7 // characters as people see them, and their width
	github.com/rogpeppe/go-internal v1.16.0 // tests: scripts and golden files
	github.com/sashabaranov/go-openai v1.43.0 // OpenAI-compatible models
	github.com/spf13/cobra v1.10.2 // command line
	github.com/spf13/pflag v1.0.9 // flags of commands
	github.com/titanous/json5 v1.0.0 // settings of OpenClaw
	github.com/yuin/goldmark v1.8.7 // Markdown syntax trees
	go.mau.fi/libsignal v0.2.2 // its log, and the fake WhatsApp's signatures
	go.mau.fi/whatsmeow v0.0.0-20260821141805-33cfac511629 // WhatsApp as a linked device; only this form of version downloads
	go.uber.org/goleak v1.3.0 // tests: goroutines that are left
	go.yaml.in/yaml/v3 v3.0.6 // front matter of skills
	golang.org/x/crypto v0.59.0 // fake WhatsApp of the tests
	golang.org/x/image v0.48.0 // scaling of images, WebP
	golang.org/x/net v0.62.0 // host names, HTML; DNS and BPF of the tests and the sandbox
	golang.org/x/oauth2 v0.38.0 // logins of MCP servers
	golang.org/x/sync v0.25.0 // groups of goroutines
	golang.org/x/sys v0.50.0 // file locks
	golang.org/x/term v0.48.0 // line editor of the terminal
	golang.org/x/text v0.44.0 // encodings of web pages, forms of Unicode
	golang.org/x/time v0.16.0 // rate limits
	google.golang.org/protobuf v1.36.12 // WhatsApp's messages
	gopkg.in/natefinch/lumberjack.v2 v2.2.1 // log files by size and age
	modernc.org/sqlite v1.62.0 // database, without C
	pgregory.net/rapid v1.3.0 // tests: properties
	rsc.io/qr v0.2.0 // QR codes for pairing
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/JohannesKaufmann/dom v0.3.1 // indirect
	github.com/andybalholm/cascadia v1.3.4 // indirect
	github.com/beeper/argo-go v1.1.2 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/charmbracelet/ultraviolet v0.0.0-20261008173134-6b8d4baf91b4 // indirect
	github.com/charmbracelet/x/term v0.2.2 // indirect
	github.com/charmbracelet/x/windows v0.2.2 // indirect
	github.com/clipperhouse/displaywidth v0.11.0 // indirect
	github.com/clipperhouse/uax29/v2 v2.7.0 // indirect
	github.com/dustin/go-humanize v1.1.0 // indirect
	github.com/elliotchance/orderedmap/v3 v3.1.0 // indirect
	github.com/go-shiori/dom v0.0.0-20230515143342-73569d674e1c // indirect
	github.com/gogs/chardet v0.0.0-20211120154057-b7413eaefb8f // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/itlightning/dateparse v0.2.1 // indirect
	github.com/knadh/koanf/maps v0.1.2 // indirect
	github.com/kylelemons/godebug v1.1.0 // indirect
	github.com/lucasb-eyer/go-colorful v1.4.1 // indirect
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/mattn/go-runewidth v0.0.30 // indirect
	github.com/mitchellh/copystructure v1.2.0 // indirect
	github.com/mitchellh/reflectwalk v1.0.2 // indirect
	github.com/muesli/cancelreader v0.2.2 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/ncruces/go-strftime v1.1.0 // indirect
	github.com/petermattis/goid v0.0.0-20260816044145-ed329add6b1b // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	github.com/rs/zerolog v1.35.1 // indirect
	github.com/segmentio/asm v1.1.3 // indirect
	github.com/segmentio/encoding v0.5.4 // indirect
	github.com/vektah/gqlparser/v2 v2.5.27 // indirect
	github.com/xo/terminfo v1.0.0 // indirect
	github.com/yosida95/uritemplate/v3 v3.0.2 // indirect
	go.mau.fi/util v0.10.1-0.20260820140024-eb612d936fde // indirect
	golang.org/x/exp v0.0.0-20260813180055-c1d0aacb2297 // indirect
	golang.org/x/tools v0.52.0 // indirect
	kernel.org/pub/linux/libs/security/libcap/psx v1.2.78 // indirect
	modernc.org/libc v1.80.1 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
)
