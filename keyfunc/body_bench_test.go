package keyfunc_test

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/keyfunc"
)

// A body must not cost a limiter much more than the handler behind it.
func BenchmarkBodyJSON(b *testing.B) {
	for name, body := range map[string]string{
		"login":         `{"email":"alice@example.com","password":"correct horse battery staple","remember":true}`,
		"8KiB-names":    `{` + strings.Repeat(`"e":1,`, 8<<10/6) + `"email":"alice"}`,
		"8KiB-escapes":  `{` + strings.Repeat(`"\u0065":1,`, 8<<10/11) + `"email":"alice"}`,
		"8KiB-string":   `{"email":"alice","text":"` + strings.Repeat("lorem ipsum ", 8<<10/12) + `"}`,
		"8KiB-nested":   `{"email":"alice","list":[` + strings.Repeat(`{"id":1,"name":"x"},`, 8<<10/20) + `0]}`,
		"8KiB-amps":     `{"email":"alice","x":"` + strings.Repeat("&", 8<<10) + `"}`,
		"8KiB-percents": `{"email":"alice","x":"` + strings.Repeat("&%65", 8<<10/4) + `"}`,
		"256KiB-names":  `{` + strings.Repeat(`"e":1,`, 256<<10/6) + `"email":"alice"}`,
	} {
		b.Run(name+"/key", func(b *testing.B) {
			k, r, sent := keyfunc.BodyJSON("email", 1<<20), post(jsonType, nil), bytes.NewReader(nil)
			r.ContentLength = int64(len(body))
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				sent.Reset([]byte(body))
				r.Body = io.NopCloser(sent)
				if _, err := k.Resolve(r); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/Unmarshal", func(b *testing.B) {
			sent := bytes.NewReader(nil)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				sent.Reset([]byte(body))
				text, err := io.ReadAll(sent)
				if err != nil {
					b.Fatal(err)
				}
				var in struct{ Email string }
				if err := json.Unmarshal(text, &in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
