package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"image"
	"image/png"
	"strings"
	"testing"

	"gateway/agent/llm"
	"gateway/agent/llm/openai/openaitest"
)

func pngData(t *testing.T) []byte {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 2, 1))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestImages(t *testing.T) {
	srv := openaitest.Start(nil)
	defer srv.Close()
	data := pngData(t)
	m := New("test", "m", &Options{BaseURL: srv.URL})
	loaded := llm.Image{Path: "a.png", Type: "image/png", Data: data}
	gone := llm.Image{Path: "b/c.jpg", Type: "image/jpeg"}
	for name, tt := range map[string]struct {
		msg    llm.Message
		text   string
		images int
	}{
		"one":       {llm.Message{Text: "look", Images: []llm.Image{loaded}}, "look", 1},
		"no text":   {llm.Message{Images: []llm.Image{loaded, loaded}}, "", 2},
		"not there": {llm.Message{Text: "look", Images: []llm.Image{gone}}, "[image: b/c.jpg]\nlook", 0},
		"both": {llm.Message{Text: "look", Images: []llm.Image{gone, loaded, gone}},
			"[image: b/c.jpg]\n[image: b/c.jpg]\nlook", 1},
		"only gone": {llm.Message{Images: []llm.Image{gone}}, "[image: b/c.jpg]", 0},
	} {
		t.Run(name, func(t *testing.T) {
			tt.msg.Role = llm.User
			for _, err := range m.Stream(t.Context(), llm.Request{Messages: []llm.Message{tt.msg}}) {
				if err != nil {
					t.Fatal(err)
				}
			}
			all := srv.Requests()
			got := all[len(all)-1].Messages[0]
			if got.Content != tt.text || len(got.Images) != tt.images {
				t.Errorf("sent %q and %d images, want %q and %d",
					got.Content, len(got.Images), tt.text, tt.images)
			}
			for _, im := range got.Images {
				if im.Type != "image/png" || !bytes.Equal(im.Data, data) {
					t.Errorf("sent %+v", im)
				}
			}
		})
	}
}

// A transcript keeps the path of an image, not its data.
func TestImageJSON(t *testing.T) {
	im := llm.Image{Path: "a", Type: "image/png", Data: []byte("x")}
	b, err := json.Marshal(llm.Message{Role: llm.User, Images: []llm.Image{im}})
	want := `{"role":"user","text":"","images":[{"path":"a","type":"image/png"}]}`
	if string(b) != want || err != nil {
		t.Errorf("got %s, %v", b, err)
	}
}

func TestNoImages(t *testing.T) {
	srv := openaitest.Start(nil)
	defer srv.Close()
	m := New("test", "m", &Options{BaseURL: srv.URL})
	with := llm.Message{Role: llm.User, Text: "look",
		Images: []llm.Image{{Path: "a", Type: "image/png", Data: pngData(t)}}}
	without := with
	without.Images = []llm.Image{{Path: "a"}}
	ask := func(msg llm.Message) error {
		for _, err := range m.Stream(t.Context(), llm.Request{Messages: []llm.Message{msg}}) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	body := func(message string) string {
		b, err := json.Marshal(map[string]any{"error": map[string]any{"message": message}})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, f := range []openaitest.Fault{
		openaitest.NoImages(),
		{Status: 400, Body: body("Invalid content type. image_url is only supported by certain models.")},
		{Status: 400, Body: body("This model does not support image inputs")},
		{Status: 400, Body: body("messages[0]: unknown variant `image_url`, expected `text`")},
		{Status: 422, Body: body("llava: this is not a multimodal model")},
		{Status: 400, Body: body("You uploaded an unsupported image. Please make sure it is valid.")},
	} {
		srv.RefuseImages(f)
		var e *llm.Error
		if err := ask(with); !errors.As(err, &e) || e.Kind != llm.NoImages {
			t.Errorf("got %v for %s", err, f.Body)
		}
		if err := ask(without); err != nil {
			t.Errorf("without images: %v", err)
		}
		srv.Inject(1, f)
		if err := ask(without); !errors.As(err, &e) || e.Kind != llm.BadRequest {
			t.Errorf("without images: got %v for %s", err, f.Body)
		}
	}
	for message, want := range map[string]llm.Kind{
		"the image was flagged by our safety system":        llm.ContentRefused,
		"image tokens exceed the maximum context length":    llm.ContextTooLong,
		"unsupported parameter: 'max_tokens'":               llm.BadRequest,
		"tool calls are not supported together with vision": llm.NoImages, // asked again without images
	} {
		srv.RefuseImages(openaitest.Fault{Status: 400, Body: body(message)})
		var e *llm.Error
		if err := ask(with); !errors.As(err, &e) || e.Kind != want {
			t.Errorf("got %v for %q, want %v", err, message, want)
		}
	}
	if strings.Contains(ask(with).Error(), "base64") {
		t.Error("the image is in the error")
	}
}
