package extract

import (
	"net"
	"os"
	"runtime"
	"testing"
)

// A child that decodes files can't read or write other files and can't connect to anything.
func TestSealed(t *testing.T) {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("the sandbox does not know this architecture")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	data, _, err := newExtractor(t).Do(t.Context(), jobOf("escape", "a", l.Addr().String()))
	if err != nil || len(data) > 0 {
		t.Errorf("it could %q (%v)", data, err)
	}
	if _, err := os.Stat("/tmp/gateway-extract-test"); err == nil {
		t.Error("it has left a file")
	}
}
