package documenttest

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/md5"
	"crypto/rc4"
	"fmt"
	"slices"
)

// A Lock is a way to encrypt PDF files. See ISO 32000-1, 7.6.
type Lock struct {
	Version  int    // V: 1 for RC4 with 40 bits, 2 for RC4 with 128 bits, 4 for AES-128, 5 for AES-256
	Password string // for reading the file
}

// passwordPad fills passwords up to 32 bytes.
var passwordPad = []byte("\x28\xbf\x4e\x5e\x4e\x75\x8a\x41\x64\x00\x4e\x56\xff\xfa\x01\x08" +
	"\x2e\x2e\x00\xb6\xd0\x68\x3e\x80\x2f\x0c\xa9\xfe\x64\x53\x69\x7a")

// Values of the files that the standard lets the writer choose.
const (
	fileID      = "0123456789abcdef"
	ownerKey    = "This is the entry for the owner." // 32 bytes
	permissions = "\xc4\xf0\xff\xff"                 // P, which is -3900
)

// LockedPDF returns an encrypted file with one page that has the given content. For AES-256 the
// content can't be read with any password.
func LockedPDF(content string, l Lock) []byte {
	revision := map[int]int{1: 2, 2: 3, 4: 4, 5: 5}[l.Version]
	key := l.key(revision)
	var p pdfFile
	p.object("<</Type /Catalog /Pages 2 0 R>>")
	p.object("<</Type /Pages /Count 1 /Kids [3 0 R]>>")
	p.object("<</Type /Page /Parent 2 0 R /Contents 4 0 R /Resources <</Font <</F1 5 0 R>>>>>>")
	p.stream("", l.encrypt(key, 4, content))
	p.object("<</Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding>>")
	more := ""
	switch l.Version {
	case 2:
		more = "/Length 128"
	case 4:
		more = "/Length 128 /StmF /A /StrF /A /CF <</A <</AuthEvent /DocOpen /CFM /AESV2 /Length 16>>>>"
	case 5:
		more = "/Length 256 /StmF /A /StrF /A /CF <</A <</AuthEvent /DocOpen /CFM /AESV3 /Length 32>>>>"
	}
	return p.bytes(fmt.Sprintf("/ID [<%x> <%[1]x>] /Encrypt "+
		"<</Filter /Standard /V %d /R %d /O <%x> /U <%x> /P -3900 %s>>",
		fileID, l.Version, revision, ownerKey, userKey(key, revision), more))
}

// key returns the key of the file, by algorithm 2 of the standard.
func (l Lock) key(revision int) []byte {
	padded := append([]byte(l.Password), passwordPad...)[:len(passwordPad)]
	sum := md5.Sum(slices.Concat(padded, []byte(ownerKey+permissions+fileID)))
	if revision == 2 {
		return sum[:5]
	}
	for range 50 {
		sum = md5.Sum(sum[:])
	}
	return sum[:]
}

// userKey returns the entry U, with which readers check the password: algorithms 4 and 5.
func userKey(key []byte, revision int) []byte {
	if revision == 2 {
		return byRC4(key, passwordPad)
	}
	sum := md5.Sum(append(bytes.Clone(passwordPad), fileID...))
	out := sum[:]
	for i := range 20 {
		round := bytes.Clone(key)
		for j := range round {
			round[j] ^= byte(i)
		}
		out = byRC4(round, out)
	}
	return append(out, make([]byte, 16)...)
}

// encrypt encrypts the stream with an object's number, by algorithm 1.
func (l Lock) encrypt(key []byte, object byte, content string) string {
	seed := append(bytes.Clone(key), object, 0, 0, 0, 0)
	if l.Version >= 4 {
		seed = append(seed, "sAlT"...)
	}
	sum := md5.Sum(seed)
	key = sum[:min(len(key)+5, len(sum))]
	if l.Version < 4 {
		return string(byRC4(key, []byte(content)))
	}
	fill := aes.BlockSize - len(content)%aes.BlockSize
	data := append([]byte(content), bytes.Repeat([]byte{byte(fill)}, fill)...)
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the key has 16 bytes
	}
	cipher.NewCBCEncrypter(block, []byte(fileID)).CryptBlocks(data, data)
	return fileID + string(data) // the initialization vector comes first
}

func byRC4(key, data []byte) []byte {
	c, err := rc4.NewCipher(key)
	if err != nil {
		panic(err) // the key has 5 to 16 bytes
	}
	out := make([]byte, len(data))
	c.XORKeyStream(out, data)
	return out
}
