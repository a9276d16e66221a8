//go:build race

package markup

// overhead is how much more memory rendering takes with the race detector, which empties pools
// at random.
const overhead = 4
