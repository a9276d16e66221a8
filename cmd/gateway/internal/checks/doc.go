// Package checks has the tests that hold for the repository as a whole: its style, the table of
// imports, the documents and the files of deploy.
package checks
