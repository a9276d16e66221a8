//go:build !linux

package storetest

func roomy(string) bool { return false }
