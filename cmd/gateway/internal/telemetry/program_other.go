//go:build !linux

package telemetry

func dropProgram() error { return nil }
