package tool

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
)

// An Operand is a file that a call names. An approval of the call covers the file's
// content.
type Operand struct {
	Name string // as the call names it
	Size int64  // bytes
	Sum  string // SHA-256 of its content; "" if the file is too large
}

// ReadOperand returns the operand for a file with content r. It omits Sum if the file has
// more than most bytes.
func ReadOperand(name string, r io.Reader, most int64) (Operand, error) {
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(r, most+1))
	if err != nil {
		return Operand{}, fmt.Errorf("read %q: %w", name, err)
	}
	o := Operand{Name: name, Size: n}
	if n <= most {
		o.Sum = hex.EncodeToString(h.Sum(nil))
	}
	return o, nil
}
