package openaitest

import (
	"net/http"
	"strings"
	"testing"
)

// Requests that the real API refuses; each is one step away from a good one.
func TestStrict(t *testing.T) {
	const (
		head = `{"model":"m","stream":true,"stream_options":{"include_usage":true},`
		user = `{"role":"user","content":"x"}`
		call = `{"role":"assistant","content":"","tool_calls":[{"id":"a","type":"function",` +
			`"function":{"name":"f","arguments":""}}]}`
		result = `{"role":"tool","content":"","tool_call_id":"a"}`
	)
	tests := map[string]struct {
		body string
		ok   bool
	}{
		"good":             {head + `"messages":[` + user + `]}`, true},
		"good tool use":    {head + `"messages":[` + user + `,` + call + `,` + result + `]}`, true},
		"no JSON":          {`{`, false},
		"no model":         {strings.Replace(head, `"m"`, `""`, 1) + `"messages":[` + user + `]}`, false},
		"no messages":      {head + `"messages":[]}`, false},
		"unknown role":     {head + `"messages":[{"role":"robot","content":"x"}]}`, false},
		"no content":       {head + `"messages":[{"role":"user"}]}`, false},
		"begins with us":   {head + `"messages":[{"role":"assistant","content":"x"}]}`, false},
		"result alone":     {head + `"messages":[` + user + `,` + result + `]}`, false},
		"call alone":       {head + `"messages":[` + user + `,` + call + `]}`, false},
		"call then user":   {head + `"messages":[` + user + `,` + call + `,` + user + `]}`, false},
		"result twice":     {head + `"messages":[` + user + `,` + call + `,` + result + `,` + result + `]}`, false},
		"duplicate id":     {head + `"messages":[` + strings.Join([]string{user, call, result, call, result}, ",") + `]}`, false},
		"no arguments":     {head + `"messages":[` + user + `,` + strings.Replace(call, `,"arguments":""`, "", 1) + `,` + result + `]}`, false},
		"no schema":        {head + `"messages":[` + user + `],"tools":[{"type":"function","function":{"name":"f"}}]}`, false},
		"schema of string": {head + `"messages":[` + user + `],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"string"}}}]}`, false},
		"bad tool name":    {head + `"messages":[` + user + `],"tools":[{"type":"function","function":{"name":"f g","parameters":{"type":"object","properties":{}}}}]}`, false},
		"both limits":      {head + `"max_tokens":1,"max_completion_tokens":1,"messages":[` + user + `]}`, false},
	}
	srv := Start(nil)
	defer srv.Close()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			resp, err := http.Post(srv.URL+"/chat/completions", "application/json", strings.NewReader(tt.body))
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
