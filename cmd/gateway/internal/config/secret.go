package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
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

// UnmarshalText sets s to text. [Load] then follows a reference.
func (s *Secret) UnmarshalText(text []byte) error {
	v := string(text)
	s.value = &v
	return nil
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// follow returns the secret that s refers to, or s if it is no reference. Its
// errors name the variable or the file and never the content.
func (s Secret) follow(home string, vars map[string]string) (Secret, error) {
	if name, ok := strings.CutPrefix(s.Reveal(), "env:"); ok {
		if !variableName.MatchString(name) {
			return Secret{}, errors.New(`"env:" wants the name of an environment variable after it`)
		}
		v := strings.TrimSpace(vars[name])
		if v == "" {
			return Secret{}, fmt.Errorf("environment variable %s is not set", name)
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

// Secrets returns the values of all secrets in c.
func (c *Config) Secrets() []string { return secretsIn(reflect.ValueOf(*c)) }

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
	}
	return list
}
