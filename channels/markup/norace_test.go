//go:build !race

package markup

const overhead = 1
