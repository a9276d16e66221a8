package main

import (
	"bytes"
	"encoding/json"
	"os"
	"runtime/debug"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
)

func TestDescribe(t *testing.T) {
	bom := describe(&debug.BuildInfo{
		GoVersion: "go1.26.8",
		Main:      debug.Module{Path: "gateway"},
		Deps: []*debug.Module{
			{Path: "github.com/Some/One", Version: "v1.2.3", Sum: "h1:abc="},
			{Path: "old.example/two", Version: "v1.0.0", Replace: &debug.Module{
				Path: "new.example/two", Version: "v1.0.1"}},
		},
	}, "4.5.6", "00ff")
	if got := bom.Metadata.Component.BOMRef; got != "pkg:golang/gateway@4.5.6" {
		t.Errorf("the program is %s", got)
	}
	want := []string{"pkg:golang/std@1.26.8", "pkg:golang/github.com/some/one@v1.2.3",
		"pkg:golang/new.example/two@v1.0.1"}
	needs := *(*bom.Dependencies)[0].Dependencies
	for i, part := range *bom.Components {
		if part.PackageURL != want[i] || needs[i] != want[i] {
			t.Errorf("part %d is %s, needed as %s; want %s", i, part.PackageURL, needs[i], want[i])
		}
	}
	if sum := (*(*bom.Components)[1].Properties)[0]; sum.Value != "h1:abc=" {
		t.Errorf("the sum of a module is %v", sum)
	}
}

// TestRun describes the test binary itself.
func TestRun(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, again bytes.Buffer
	for _, b := range []*bytes.Buffer{&out, &again} {
		if err := run(b, program, "1.0", "2026-11-23T00:00:00Z"); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Error("the same program gives other bytes")
	}
	var bom cyclonedx.BOM
	if err := json.Unmarshal(out.Bytes(), &bom); err != nil {
		t.Fatal(err)
	}
	if len(*bom.Components) < 2 || bom.SpecVersion != cyclonedx.SpecVersion1_5 {
		t.Errorf("the document has %d components and version %s", len(*bom.Components), bom.SpecVersion)
	}
	if err := run(&out, program, "1.0", "yesterday"); err == nil {
		t.Error("a date that is none is accepted")
	}
}
