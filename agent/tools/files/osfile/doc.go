// Package osfile holds what package files does with open files in a way of its own on each
// operating system: the owner of a new file, the files of the system itself, and fast listings.
package osfile
