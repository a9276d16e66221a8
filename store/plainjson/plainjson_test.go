package plainjson_test

import (
	"testing"

	"gateway/store/plainjson"
)

func TestText(t *testing.T) {
	if got, want := plainjson.Text("a <b> & \"c\"\n"), `"a <b> & \"c\"\n"`; got != want {
		t.Errorf("Text = %s, want %s", got, want)
	}
	if _, err := plainjson.Marshal(make(chan int)); err == nil {
		t.Error("Marshal of a channel reports no error")
	}
}
