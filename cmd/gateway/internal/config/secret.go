package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"gateway/store/plaintext"
)

const redacted = "redacted"

// A Secret is a credential. Printing, logging or marshaling it gives "redacted"; only Reveal
// returns the credential. The zero Secret is empty.
//
// In a source, a Secret is the credential itself, "env:NAME" or "file:PATH".
type Secret struct {
	// A pointer, because package fmt prints unexported fields without calling their methods. It
	// then prints only the address.
	value *string
}

// Reveal returns the credential, or "" if it is empty.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// String returns "redacted".
func (Secret) String() string { return redacted }

// Format prints "redacted" for every verb.
func (Secret) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, redacted) // a Formatter can't return an error
}

// LogValue returns "redacted".
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns "redacted". JSON and TOML encoders call it.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// UnmarshalText sets s to text. [Load] resolves references later. The text "redacted", which
// MarshalText writes, gives an empty Secret.
func (s *Secret) UnmarshalText(text []byte) error {
	if v := string(text); v != redacted {
		s.value = &v
	}
	return nil
}

// isReference reports whether a value is a reference to a secret.
func isReference(s string) bool {
	return strings.HasPrefix(s, "env:") || strings.HasPrefix(s, "file:")
}

var variableName = plaintext.Pattern(`^[A-Za-z_][A-Za-z0-9_]*$`)

// errNoReference means that a reference is not valid on any machine.
var errNoReference = errors.New(`"env:" wants the name of an environment variable after it`)

// follow returns the secret to which s refers, or s if it is not a reference. Its errors name the
// variable or the file and never the content.
func (s Secret) follow(home string, vars map[string]string) (Secret, error) {
	if name, ok := strings.CutPrefix(s.Reveal(), "env:"); ok {
		if !variableName().MatchString(name) {
			return Secret{}, errNoReference
		}
		v := strings.TrimSpace(vars[name])
		if v == "" {
			return Secret{}, fmt.Errorf("environment variable %[1]s is not set here: run "+
				"\"export %[1]s=…\" first, or store the secret in a file and write \"file:PATH\"", name)
		}
		return Secret{&v}, nil
	}
	path, ok := strings.CutPrefix(s.Reveal(), "file:")
	if !ok {
		return s, nil
	}
	path, err := expand(path, home, vars)
	if err != nil {
		return Secret{}, err
	}
	f, err := os.Open(path)
	if err != nil {
		return Secret{}, err // the error contains the path
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err != nil {
		return Secret{}, err
	}
	if len(b) > maxSecretFile {
		return Secret{}, fmt.Errorf("file %s is too long for a secret: want at most %d bytes", path,
			maxSecretFile)
	}
	v := strings.TrimSpace(string(DecodeText(b)))
	if v == "" {
		return Secret{}, fmt.Errorf("file %s is empty", path)
	}
	return Secret{&v}, nil
}

// Follow returns the secret to which a flag refers. A relative path is relative to the working
// directory.
func Follow(reference string, environ []string) (string, error) {
	if !isReference(reference) {
		return "", errors.New(`want "env:NAME" or "file:PATH": others can see the command line`)
	}
	s, err := Secret{&reference}.follow("", variables(environ))
	return s.Reveal(), err
}

// maxSecretFile is the maximum size of a file with a secret, in bytes.
const maxSecretFile = 64 << 10

// expand returns path as an absolute path. A leading "~" is the user's home directory. A relative
// path is relative to base, or to the working directory if base is "".
func expand(path, base string, vars map[string]string) (string, error) {
	if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || os.IsPathSeparator(rest[0])) {
		home := vars["HOME"]
		if home == "" {
			home = vars["USERPROFILE"] // on Windows
		}
		if home == "" {
			return "", errors.New(`"~" has no meaning, because HOME is not set`)
		}
		path = filepath.Join(home, rest)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(base, path)
	}
	return filepath.Abs(path)
}

// Secrets returns the values of all secrets in c. They include those in the URLs of MCP servers,
// and the variables for commands whose names look like credentials.
func (c *Config) Secrets() []string {
	list := slices.Clone(c.exposed)
	eachSecret(reflect.ValueOf(*c), nil, func(_ []string, s Secret) {
		if s.Reveal() != "" {
			list = append(list, s.Reveal())
		}
	})
	for _, s := range c.MCP {
		list = append(list, urlSecrets(s.URL)...)
	}
	return list
}

// secretName matches the names of variables that contain secrets.
var secretName = plaintext.Pattern(`(?i)(KEY|TOKEN|SECRET|PASSW|CREDENTIAL)`)

// minExposed is the minimum length of such a variable's value. A shorter value, such as "true",
// occurs in many texts.
const minExposed = 8

// NamesSecret reports whether the name of a variable looks like that of a credential.
func NamesSecret(variable string) bool { return secretName().MatchString(variable) }

// exposed returns the values of those of the named variables that are credentials.
func exposed(names []string, vars map[string]string) (list []string) {
	for _, name := range names {
		if v := strings.TrimSpace(vars[name]); NamesSecret(name) && len(v) >= minExposed {
			list = append(list, v)
		}
	}
	return list
}

// minToken is the minimum length of a URL part that may be a token.
const minToken = 16

// urlSecrets returns the credentials in a URL: the password, and parts of the path and the query
// that look like tokens. Such parts are long and contain letters and digits.
func urlSecrets(address string) (list []string) {
	u, err := url.Parse(address)
	if err != nil {
		return nil
	}
	if password, ok := u.User.Password(); ok && password != "" {
		list = append(list, password)
	}
	parts := strings.Split(u.Path, "/")
	for _, values := range u.Query() {
		parts = append(parts, values...)
	}
	for _, part := range parts {
		if len(part) >= minToken && strings.ContainsAny(part, "0123456789") &&
			strings.ContainsFunc(part, unicode.IsLetter) {
			list = append(list, part)
		}
	}
	return list
}

// eachSecret calls do with each secret in v and its path.
func eachSecret(v reflect.Value, path []string, do func(path []string, s Secret)) {
	path = slices.Clip(path)
	switch {
	case v.Type() == secretType:
		do(path, v.Interface().(Secret))
	case v.Type() == secretsType:
		for i := range v.Len() {
			eachSecret(v.Index(i), append(path, strconv.Itoa(i)), do)
		}
	default:
		for key, child := range children(v) {
			eachSecret(child, append(path, key), do)
		}
	}
}

// A Written is a secret as it is written in the configuration file.
type Written struct{ Key, Value string }

// Literal reports whether w is the secret itself and not a reference.
func (w Written) Literal() bool { return !isReference(w.Value) }

// SecretsIn returns the secrets in a configuration file, sorted by key. The file may be missing.
func SecretsIn(file string) (list []Written, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := problems{places: make(places)}
	c, err := merge(sources{defaults: readDefaults(), file: readFile(file, DecodeText(text), &found)})
	if err = cmp.Or(joinProblems(found.list), err); err != nil {
		return nil, err
	}
	eachSecret(reflect.ValueOf(*c), nil, func(path []string, s Secret) {
		if s.Reveal() != "" {
			list = append(list, Written{strings.Join(path, "."), s.Reveal()})
		}
	})
	slices.SortFunc(list, func(a, b Written) int { return strings.Compare(a.Key, b.Key) })
	return list, nil
}
