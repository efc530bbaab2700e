package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// pick finds in an object what decoding all of it finds.
func FuzzPick(f *testing.F) {
	for _, line := range []string{
		`{}`, `{"a":1}`, ` { "a" : "x" , "b" : { "c" : [ 1 , "2" , null ] , "d" : { } } } `, `{"a":{"b":1},"b":{"c":{"d":-1.5e3}}}`,
		`{"\u0061":"\ud83d\ude42\n","b":null,"a":true}`, `{"b.c":"literal"}`, `{"b":{"c":"\\\""},"x":"}{\"]["}`, `{"b":{"c":{"d":"deep"}},"b":{"c":2}}`,
		`{"a":[{"b":"}"},"]"],"b":[1,2]}`, `{"a":1e400}`, `{"a":123456789012345678,"b":-0}`, `{"b":{"c.d":7,"c":{"d":"8"}}}`, "{\"a\":\"\xff\",\"\xffa\":2}", `{"a":1`, `{"a":"`,
	} {
		f.Add(line)
	}
	paths := []string{"a", "b", "b.c", "", "b.c.d", "a"}
	f.Fuzz(func(t *testing.T, line string) {
		if !strings.HasPrefix(line, "{") || strings.Contains(line, "e") || strings.Contains(line, "E") {
			return // what is no object is not asked for; numbers out of range are an error to one of them
		}
		got, ok := newPicker(paths).pick(line, nil)
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); ok != (err == nil) {
			t.Fatalf("%q: %t, %v", line, ok, err)
		}
		if !ok || ambiguous(line) {
			return
		}
		for i, path := range paths {
			want := find(object, path)
			if _, isObject := want.(map[string]any); isObject {
				continue // nobody wants one
			}
			if value(got[i]) != text(want) {
				t.Errorf("%q: %s is %q, want %q", line, path, value(got[i]), text(want))
			}
		}
	})
}

// ambiguous reports whether a path may be there twice: whoever writes such a log
// does not know which value counts.
func ambiguous(line string) bool {
	decoder := json.NewDecoder(strings.NewReader(line))
	seen := make(map[string]int)
	for {
		token, err := decoder.Token()
		if err != nil {
			break
		}
		if name, ok := token.(string); ok {
			seen[name]++
		}
	}
	return seen["a"]+seen["b"]+seen["c"]+seen["d"]+seen["b.c"]+seen["c.d"]+seen["b.c.d"] > 4 || seen["a"] > 1 || seen["b"] > 1 || seen["c"] > 1 || seen["d"] > 1 ||
		seen["b.c"] > 0 && seen["c"] > 0 || seen["b.c.d"] > 0 || seen["c.d"] > 0
}
