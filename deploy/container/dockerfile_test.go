package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestParseDockerfile(t *testing.T) {
	stages, err := parseDockerfile(`# comment
FROM golang:1.26-trixie AS build
ARG VERSION=1
RUN one \
    # between
    && two

FROM debian:trixie-slim
COPY --from=build /out/a /b/
ENV A=1 B=2
WORKDIR /data
USER 1:2
VOLUME /data
HEALTHCHECK --interval=1s CMD ["gateway", "health"]
ENTRYPOINT ["gateway"]
`)
	if err != nil {
		t.Fatal(err)
	}
	if len(stages) != 2 || stages[0].base != "golang:1.26-trixie" || stages[0].name != "build" {
		t.Fatalf("stages: %+v", stages)
	}
	if got := strings.Fields(stages[0].steps[1].rest); !slices.Equal(got,
		[]string{"one", "&&", "two"}) {
		t.Errorf("RUN: %q", got)
	}
	if c := stages[1].steps[0]; c.from != "build" || c.rest != "/out/a /b/" {
		t.Errorf("COPY: %+v", c)
	}
	m := newImage()
	for _, s := range stages[1].steps[1:] {
		if _, err := m.note(s); err != nil {
			t.Fatal(err)
		}
	}
	if m.dir != "/data" || m.uid != 1 || m.gid != 2 || m.volume != "/data" ||
		!slices.Equal(m.health, []string{"gateway", "health"}) ||
		!slices.Equal(m.entrypoint, []string{"gateway"}) ||
		!slices.Equal(m.env[1:], []string{"A=1", "B=2"}) {
		t.Errorf("image: %+v", m)
	}
}

func TestParseDockerfileRefuses(t *testing.T) {
	for _, text := range []string{
		"", "RUN before", "FROM a\nADD x y", "FROM a b c", "FROM a\nRUN --mount=type=cache x",
		"FROM a\nCOPY --chown=1:1 x y", "FROM a\nENTRYPOINT [1", "FROM a\nSHELL sh", "FROM a\nRUN",
	} {
		if stages, err := parseDockerfile(text); err == nil {
			t.Errorf("%q: %+v, want an error", text, stages)
		}
	}
}

// TestOurs holds that the Dockerfile is one that the plain root file system can follow, and that it
// has what is promised of it.
func TestOurs(t *testing.T) {
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	stages, err := parseDockerfile(string(text))
	if err != nil {
		t.Fatal(err)
	}
	m := newImage()
	last := stages[len(stages)-1]
	for _, s := range last.steps {
		if _, err := m.note(s); err != nil {
			t.Error(err)
		}
	}
	if m.uid != 10001 || m.gid != 10001 {
		t.Errorf("USER %d:%d, want 10001:10001, as the manifests have it", m.uid, m.gid)
	}
	if !slices.Equal(m.entrypoint, []string{"gateway"}) || m.volume != "/data" ||
		m.stop != "SIGTERM" || !slices.Equal(m.health, []string{"gateway", "health"}) {
		t.Errorf("image: %+v", m)
	}
	if !debianImage.MatchString(last.base) || !golangImage.MatchString(stages[0].base) {
		t.Errorf("nothing stands for %s or %s", stages[0].base, last.base)
	}
	if strings.Contains(string(text), "KEY") || strings.Contains(string(text), "TOKEN") {
		t.Error("a secret must not get into a layer")
	}
}

func TestIgnore(t *testing.T) {
	ig := parseIgnore("# only some\n*\n!go.mod\n!cmd\n**/*_test.go\n**/.env\n**/testdata\n")
	for file, want := range map[string]bool{
		"go.mod": false, "cmd/a/main.go": false, "README.md": true, ".env": true, "cmd/.env": true,
		"cmd/a/main_test.go": true, "cmd/testdata/x/y": true, "docs/a.md": true,
	} {
		if got := ig.ignores(file); got != want {
			t.Errorf("%s is left out: %t, want %t", file, got, want)
		}
	}
}

// TestContext holds that no secret of somebody's own gets to an engine.
func TestContext(t *testing.T) {
	text, err := os.ReadFile("../../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	ig := parseIgnore(string(text))
	for _, file := range []string{".env", "deploy/.env", "config.toml", "gateway.db", "cmd/.env",
		"cmd/gateway.db", ".git/config"} {
		if !ig.ignores(file) {
			t.Errorf("%s would be sent to the engine", file)
		}
	}
	for _, file := range []string{"go.mod", "go.sum", "LICENSE", "config.toml.example",
		"cmd/gateway/main.go", "cmd/gateway/internal/config/defaults.toml", "skills/skills.go"} {
		if ig.ignores(file) {
			t.Errorf("%s is left out, which the build needs", file)
		}
	}
}

func TestExpandGroups(t *testing.T) {
	const text = "@default\n    # Always there\n    exit\n\n@a\n    @b\n    read\n\n" +
		"@b\n    @a\n    write\n    read\n\n# Others\n"
	got, err := expandGroups([]string{"@default", "@a", "mount"}, text)
	if want := []string{"exit", "mount", "read", "write"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("expandGroups = %q, %v, want %q", got, err, want)
	}
	if got, err := expandGroups([]string{"@none"}, text); err == nil {
		t.Errorf("a group that is not known became %q", got)
	}
}
