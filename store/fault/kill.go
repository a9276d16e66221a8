//go:build faults

package fault

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

// want is GATEWAY_FAULT=NAME:N: the process ends without a word when it comes to the
// point called NAME for the Nth time.
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

// Point marks the place between two steps called name.
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
