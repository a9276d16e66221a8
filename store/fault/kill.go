//go:build faults

package fault

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

// want and nth are the parts of GATEWAY_FAULT=NAME:N: the process kills itself when it reaches the
// point NAME for the Nth time.
var want, nth = parse(os.Getenv("GATEWAY_FAULT"))

var passed atomic.Int64

func parse(s string) (string, int64) {
	name, count, _ := strings.Cut(s, ":")
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		n = 1
	}
	return name, n
}

// Point kills the process if it is the chosen point.
func Point(name string) {
	if name != want || passed.Add(1) != nth {
		return
	}
	p, err := os.FindProcess(os.Getpid())
	if err != nil {
		panic(err)
	}
	if err := p.Kill(); err != nil {
		panic(err)
	}
	select {} // until the kill arrives
}
