package tool

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
)

// An Operand is a file that a call names. An approval of the call covers the file's
// content.
type Operand struct {
	Name string // as the call names it
	Size int64  // bytes
	Sum  string // SHA-256 of its content; "" if the file is too large
}

// ReadOperand returns the operand for a file with content r. It omits Sum if the file can't be
// read, or has more than most bytes.
func ReadOperand(name string, r io.Reader, most int64) Operand {
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(r, most+1))
	switch {
	case err != nil:
		return Operand{Name: name}
	case n > most:
		return Operand{Name: name, Size: n}
	}
	return Operand{Name: name, Size: n, Sum: hex.EncodeToString(h.Sum(nil))}
}

// ReadOperands returns the operands for the files that open opens. It leaves out files that can't
// be opened: the call itself reports the error.
func ReadOperands(
	names []string, most int64, open func(name string) (*os.File, error),
) (list []Operand) {
	for _, name := range names {
		if f, err := open(name); err == nil {
			list = append(list, ReadOperand(name, f, most))
			_ = f.Close() // it was only read
		}
	}
	return list
}
