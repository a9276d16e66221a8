package openaitest

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
)

// The fake server refuses requests that the real API refuses. Each differs in one detail from a
// valid request.
func TestStrict(t *testing.T) {
	const (
		head = `{"model":"m","stream":true,"stream_options":{"include_usage":true},`
		user = `{"role":"user","content":"x"}`
		call = `{"role":"assistant","content":"","tool_calls":[{"id":"a","type":"function",` +
			`"function":{"name":"f","arguments":"{}"}}]}`
		result = `{"role":"tool","content":"","tool_call_id":"a"}`
		schema = `{"type":"object","properties":{}}`
	)
	const (
		textPart = `{"type":"text","text":"x"}`
		pngPart  = `{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}`
	)
	parts := func(all ...string) string {
		return `{"role":"user","content":[` + strings.Join(all, ",") + `]}`
	}
	messages := func(all ...string) string {
		return head + `"messages":[` + strings.Join(all, ",") + `]}`
	}
	tool := func(function string) string {
		return head + `"messages":[` + user + `],"tools":[{"type":"function","function":` +
			function + `}]}`
	}
	tests := map[string]struct {
		body string
		ok   bool
	}{
		"good":           {messages(user), true},
		"good tool use":  {messages(user, call, result), true},
		"no JSON":        {`{`, false},
		"no model":       {strings.Replace(messages(user), `"m"`, `""`, 1), false},
		"no messages":    {messages(), false},
		"unknown role":   {messages(`{"role":"robot","content":"x"}`), false},
		"no content":     {messages(`{"role":"user"}`), false},
		"begins with us": {messages(`{"role":"assistant","content":"x"}`), false},
		"result alone":   {messages(user, result), false},
		"call alone":     {messages(user, call), false},
		"call then user": {messages(user, call, user), false},
		"result twice":   {messages(user, call, result, result), false},
		"duplicate id":   {messages(user, call, result, call, result), false},
		"bad name of a call": {
			messages(user, strings.Replace(call, `"f"`, `"a.f"`, 1), result), false},
		"bad id of a call": {messages(user, strings.Replace(call, `"a"`, `"a:0"`, 1),
			strings.Replace(result, `"a"`, `"a:0"`, 1)), false},
		"arguments in a list": {
			messages(user, strings.Replace(call, `"{}"`, `"[]"`, 1), result), false},
		"empty arguments": {
			messages(user, strings.Replace(call, `"{}"`, `""`, 1), result), false},
		"no arguments": {
			messages(user, strings.Replace(call, `,"arguments":"{}"`, "", 1), result), false},
		"both limits": {strings.Replace(messages(user), `"messages"`,
			`"max_tokens":1,"max_completion_tokens":1,"messages"`, 1), false},

		"good image":   {messages(parts(textPart, pngPart)), true},
		"image alone":  {messages(parts(pngPart)), true},
		"no parts":     {messages(parts()), false},
		"empty text":   {messages(parts(pngPart, `{"type":"text","text":""}`)), false},
		"false type":   {messages(parts(strings.Replace(pngPart, "png", "jpeg", 1))), false},
		"bad base64":   {messages(parts(strings.Replace(pngPart, "iVBOR", "!", 1))), false},
		"image by URL": {messages(parts(`{"type":"image_url","image_url":{"url":"http://a"}}`)), false},
		"unknown part": {messages(parts(`{"type":"video"}`)), false},
		"image of tool": {
			messages(user, call, strings.Replace(result, `""`, "["+pngPart+"]", 1)), false},

		"good tool":        {tool(`{"name":"f","parameters":` + schema + `}`), true},
		"bad tool name":    {tool(`{"name":"f g","parameters":` + schema + `}`), false},
		"no schema":        {tool(`{"name":"f"}`), false},
		"schema of string": {tool(`{"name":"f","parameters":{"type":"string"}}`), false},
		"no properties":    {tool(`{"name":"f","parameters":{"type":"object"}}`), false},
	}
	srv := Start(nil)
	defer srv.Close()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			body := strings.NewReader(tt.body)
			resp, err := http.Post(srv.URL+"/chat/completions", "application/json", body)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if ok := resp.StatusCode == http.StatusOK; ok != tt.ok {
				t.Errorf("status %d for %s", resp.StatusCode, tt.body)
			}
		})
	}
	if got := srv.Count(); got != len(tests) {
		t.Errorf("counted %d requests, want %d", got, len(tests))
	}
}

// Close does not wait for an answer that a failed test never allows.
func TestCloseEndsAnswer(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	s := Start(func(Request) Reply {
		close(asked)
		<-release
		return Reply{}
	})
	go func() {
		resp, err := http.Post(s.URL+"/chat/completions", "application/json", strings.NewReader(
			`{"model":"m","stream":true,"stream_options":{"include_usage":true},`+
				`"messages":[{"role":"user","content":"x"}]}`))
		if err == nil {
			_ = resp.Body.Close() // the answer does not matter
		}
	}()
	<-asked
	s.Close()
}

func TestModels(t *testing.T) {
	srv := Start(nil)
	defer srv.Close()
	srv.SetModels("a-model")
	resp, err := http.Get(srv.URL + "/models")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	buf := make([]byte, 1000)
	n, _ := resp.Body.Read(buf) // the answer is short; an empty one fails below
	if !strings.Contains(string(buf[:n]), `"a-model"`) {
		t.Errorf("got %s", buf[:n])
	}
}

func TestAudio(t *testing.T) {
	srv := Start(nil)
	defer srv.Close()
	srv.Hear("sound", "hello")
	file := map[string]string{"model": "m", "file": "sound"}
	for name, tt := range map[string]struct {
		fields   map[string]string
		fileName string
		status   int
		want     string
	}{
		"good": {file, "a.ogg", http.StatusOK, `{"text":"hello"}`},
		"unscripted": {map[string]string{"model": "m", "file": "x"}, "a.mp3", http.StatusOK,
			`{"text":"a.mp3 of 1 bytes"}`},
		"no model": {map[string]string{"file": "sound"}, "a.ogg", http.StatusBadRequest, "model"},
		"no file":  {map[string]string{"model": "m"}, "", http.StatusBadRequest, "file"},
		"empty": {map[string]string{"model": "m", "file": ""}, "a.ogg",
			http.StatusBadRequest, "short"},
		"ending":  {file, "a.opus", http.StatusBadRequest, "format"},
		"no name": {file, "voice", http.StatusBadRequest, "format"},
		"unknown": {map[string]string{"model": "m", "file": "sound", "stream": "1"}, "a.ogg",
			http.StatusBadRequest, "stream"},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			form := multipart.NewWriter(&b)
			for field, value := range tt.fields {
				create := form.CreateFormField
				if field == "file" {
					create = func(field string) (io.Writer, error) {
						return form.CreateFormFile(field, tt.fileName)
					}
				}
				w, err := create(field)
				if err == nil {
					_, err = io.WriteString(w, value)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := form.Close(); err != nil {
				t.Fatal(err)
			}
			resp, err := http.Post(srv.URL+"/audio/transcriptions", form.FormDataContentType(), &b)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != tt.status || !strings.Contains(string(got), tt.want) {
				t.Errorf("got %d %s, %v", resp.StatusCode, got, err)
			}
		})
	}
	resp, err := http.Post(srv.URL+"/audio/transcriptions", "application/json",
		strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("status %d for JSON", resp.StatusCode)
	}
}
