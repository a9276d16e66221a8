package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"unicode"
)

const redacted = "redacted"

// A Secret is a credential. However it is printed, logged or marshaled, it
// reads "redacted"; only Reveal gives it away. The zero Secret is empty.
//
// In a source it is written as itself, as "env:NAME" or as "file:PATH".
type Secret struct {
	// A pointer, because package fmt prints unexported fields of a struct
	// without asking their methods: it then shows an address.
	value *string
}

// Reveal returns the credential, or "" if there is none.
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
	_, _ = io.WriteString(f, redacted) // fmt has no way to report an error
}

// LogValue returns "redacted".
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns "redacted"; JSON and TOML encoders use it.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// UnmarshalText sets s to text. [Load] then follows a reference. The word that MarshalText writes
// in place of a credential leaves s empty.
func (s *Secret) UnmarshalText(text []byte) error {
	if v := string(text); v != redacted {
		s.value = &v
	}
	return nil
}

// isReference reports whether a value of a source says where a secret stands.
func isReference(s string) bool {
	return strings.HasPrefix(s, "env:") || strings.HasPrefix(s, "file:")
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// errNoReference reports a reference that could lead nowhere on any machine.
var errNoReference = errors.New(`"env:" wants the name of an environment variable after it`)

// follow returns the secret that s refers to, or s if it is not a reference. Its
// errors name the variable or the file and never the content.
func (s Secret) follow(home string, vars map[string]string) (Secret, error) {
	if name, ok := strings.CutPrefix(s.Reveal(), "env:"); ok {
		if !variableName.MatchString(name) {
			return Secret{}, errNoReference
		}
		v := strings.TrimSpace(vars[name])
		if v == "" {
			return Secret{}, fmt.Errorf("environment variable %[1]s is not set here: run "+
				"\"export %[1]s=…\" first, or store the secret in a file and write \"file:PATH\"", name)
		}
		return Secret{&v}, nil
	}
	if path, ok := strings.CutPrefix(s.Reveal(), "file:"); ok {
		return readSecret(path, home, vars)
	}
	return s, nil
}

func readSecret(path, home string, vars map[string]string) (Secret, error) {
	path, err := expand(path, home, vars)
	if err != nil {
		return Secret{}, err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return Secret{}, err // names the path
	}
	v := strings.TrimSpace(string(b))
	if v == "" {
		return Secret{}, fmt.Errorf("file %s is empty", path)
	}
	return Secret{&v}, nil
}

// expand returns path as an absolute path. A leading "~" is the user's home
// directory; a relative path begins at base, or at the working directory if base is "".
func expand(path, base string, vars map[string]string) (string, error) {
	if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || os.IsPathSeparator(rest[0])) {
		home := vars["HOME"]
		if home == "" {
			home = vars["USERPROFILE"] // Windows
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

// Secrets returns the values of all secrets in c, including those in the URLs of MCP servers and
// the variables that commands see and whose names say that they are credentials.
func (c *Config) Secrets() []string {
	list := append(secretsIn(reflect.ValueOf(*c)), c.exposed...)
	for _, s := range c.MCP {
		list = append(list, urlSecrets(s.URL)...)
	}
	return list
}

// secretName is what variables are called that have secrets in them.
var secretName = regexp.MustCompile(`(?i)(KEY|TOKEN|SECRET|PASSW|CREDENTIAL)`)

// leastExposed is how long the value of such a variable is at least: a shorter one, such as "true",
// stands in many texts.
const leastExposed = 8

// NamesSecret reports whether a variable is called like a credential.
func NamesSecret(variable string) bool { return secretName.MatchString(variable) }

// exposed returns the values of the variables with the given names that are credentials.
func exposed(names []string, vars map[string]string) (list []string) {
	for _, name := range names {
		if v := strings.TrimSpace(vars[name]); NamesSecret(name) && len(v) >= leastExposed {
			list = append(list, v)
		}
	}
	return list
}

// leastToken is how long a part of a URL is at least that can be a token.
const leastToken = 16

// urlSecrets returns what of a URL is a credential: passwords, and parts of its path and its query
// that look like tokens, as they are long and have letters and digits.
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
		if len(part) >= leastToken && strings.ContainsAny(part, "0123456789") &&
			strings.ContainsFunc(part, unicode.IsLetter) {
			list = append(list, part)
		}
	}
	return list
}

func secretsIn(v reflect.Value) (list []string) {
	if s, ok := v.Interface().(Secret); ok {
		if s.Reveal() != "" {
			list = append(list, s.Reveal())
		}
		return list
	}
	switch v.Kind() {
	case reflect.Struct:
		for f, field := range v.Fields() {
			if f.IsExported() && f.Tag.Get("koanf") != "-" {
				list = append(list, secretsIn(field)...)
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			list = append(list, secretsIn(it.Value())...)
		}
	case reflect.Slice:
		for _, e := range v.Seq2() {
			list = append(list, secretsIn(e)...)
		}
	}
	return list
}
