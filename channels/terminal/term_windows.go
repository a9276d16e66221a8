package terminal

// usesTerm says that the system describes its terminals in the variable TERM.
const usesTerm = false
