package strictjson

import (
	"testing"
	"time"
)

func TestDecode(t *testing.T) {
	type inner struct {
		Name string `json:"name"`
	}
	type body struct {
		inner
		Env   map[string]string `json:"env,omitempty"`
		Lists []struct {
			A int `json:"a"`
		} `json:"lists"`
		Next   *body     `json:"next"`
		At     time.Time `json:"at"`
		Hidden string    `json:"-"`
		Plain  any       `json:"plain"`
	}
	for text, want := range map[string]string{
		`{"name":"x","env":{"PATH":"a","path":"b"},"lists":[{"a":1}],"next":{"name":"y"},"at":"2026-01-02T03:04:05Z"}`: "",
		`{"plain":{"Any":1,"any":2}}`:        "",
		`{"Name":"x"}`:                       `unknown field "Name"`,
		`{"name":"x","NAME":"y"}`:            `unknown field "NAME"`,
		`{"lists":[{"a":1},{"A":2}]}`:        `unknown field "A"`,
		`{"next":{"next":{"nam\u0065s":1}}}`: `unknown field "names"`,
		`{"Hidden":"x"}`:                     `unknown field "Hidden"`,
		`{"name":"x","name":"y"}`:            `the name "name" occurs twice`,
		`{"env":1}`:                          "json: cannot unmarshal number into Go struct field body.env of type map[string]string",
		`[]`:                                 "json: cannot unmarshal array into Go value of type strictjson.body",
	} {
		var into body
		got := ""
		if err := Decode([]byte(text), 8, &into); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
