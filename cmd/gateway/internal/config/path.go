package config

// DefaultPath returns the configuration file that [Load] reads if it is given none, which need not
// be there. environ is as there.
func DefaultPath(environ []string) string { return defaultPath(variables(environ)) }
