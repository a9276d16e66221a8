//go:build unix

package terminal

// usesTerm says whether the variable TERM describes terminals on this system.
const usesTerm = true
