// The sbom command prints a bill of materials for a Go program, as CycloneDX JSON:
//
//	go run ./deploy/sbom -version 1.2.3 -date 2026-11-23T00:00:00Z PROGRAM
//
// It reads the build information in the program: each module with its version and its sum in
// go.sum, and the version of Go. The same program and the same options give the same output.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

func main() {
	version := flag.String("version", "", "the `version` of the program")
	date := flag.String("date", "", "the `time` that the document bears, as in RFC 3339")
	flag.Parse()
	if flag.NArg() != 1 || *version == "" {
		fmt.Fprintln(os.Stderr, "sbom: give -version, -date and one program")
		os.Exit(2)
	}
	if err := run(os.Stdout, flag.Arg(0), *version, *date); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, program, version, date string) error {
	if _, err := time.Parse(time.RFC3339, date); err != nil {
		return fmt.Errorf("-date: %w", err)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	sum, err := hashOf(program)
	if err != nil {
		return err
	}
	bom := describe(info, version, sum)
	bom.Metadata.Timestamp = date
	encoder := cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON)
	return encoder.SetPretty(true).EncodeVersion(bom, cyclonedx.SpecVersion1_5)
}

// describe returns the document of a program. Sum is the SHA-256 of its file in hexadecimal.
func describe(info *debug.BuildInfo, version, sum string) *cyclonedx.BOM {
	program := module(cyclonedx.ComponentTypeApplication, info.Main.Path, version)
	program.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: sum}}
	program.Licenses = &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "GPL-3.0-or-later"}}}

	std := module(cyclonedx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"))
	parts := []cyclonedx.Component{std}
	needs := []string{std.BOMRef}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		part := module(cyclonedx.ComponentTypeLibrary, dep.Path, dep.Version)
		if dep.Sum != "" {
			part.Properties = &[]cyclonedx.Property{{Name: "go:sum", Value: dep.Sum}}
		}
		parts = append(parts, part)
		needs = append(needs, part.BOMRef)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &program}
	bom.Components = &parts
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: program.BOMRef, Dependencies: &needs}}
	return bom
}

// module returns the entry of a module. Its reference is the package URL, which contains the module
// path in lower case.
func module(kind cyclonedx.ComponentType, path, version string) cyclonedx.Component {
	url := "pkg:golang/" + strings.ToLower(path) + "@" + version
	return cyclonedx.Component{
		Type: kind, BOMRef: url, PackageURL: url, Name: path, Version: version,
	}
}

func hashOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
