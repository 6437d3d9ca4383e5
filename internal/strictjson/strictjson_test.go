package strictjson

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":["\ud83d\ude00",{"b":1}]}`: "",
		`"\ufffd"`:                       "",
		"\"\uFFFD\"":                     "",
		`{"a":{"a":1}}`:                  "",
		`[1,2`:                           "it ends too early",
		``:                               "it ends too early",
		`{} {}`:                          "there is more after its end",
		`{"a":1,"\u0061":2}`:             `the name "a" occurs twice`,
		`{"a":[null]}`:                   "it holds a null; leave the field out",
		`["\ud83d"]`:                     "it holds half of a surrogate pair",
		`["\ud83d\ufffd"]`:               "it holds half of a surrogate pair",
		"\"\xff\"":                       "it is not UTF-8",
		`[[[[[1]]]]]`:                    "it nests deeper than 4",
		`[[[[1]]]]`:                      "",
		strings.Repeat("[", 1<<16):       "it nests deeper than 4",
	} {
		got := ""
		if err := Check([]byte(text), 4); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%.40q: %q, want %q", text, got, want)
		}
	}
	long := `{"` + strings.Repeat("é", 100) + `":1,"` + strings.Repeat("é", 100) + `":1}`
	if err := Check([]byte(long), 4); err == nil || len(err.Error()) > 120 {
		t.Errorf("a long name: %v", err)
	}
}

// FuzzCheck holds Check to the decoder: what it lets through, the decoder reads.
func FuzzCheck(f *testing.F) {
	f.Add([]byte(`{"source":{"kind":"none"},"commands":[{"argv":["\ud83d\ude00"]}]}`))
	f.Add([]byte(`{"a":{"a":[1,2,{"a":null}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := Check(text, 16); err == nil && !json.Valid(text) {
			t.Errorf("let through what is no JSON: %q", text)
		}
	})
}
