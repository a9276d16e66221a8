// Package e2e has the tests that drive the whole gateway, most of them as its built binary, against
// the fakes of the platforms and of the model.
package e2e
