package keyfunc_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"unicode"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/keyfunc"
)

const (
	jsonType = "application/json"
	formType = "application/x-www-form-urlencoded"
)

// post returns a request with a body, without its length.
func post(contentType string, body io.Reader) *http.Request {
	r := with("Content-Type", contentType)
	r.Method, r.ContentLength, r.URL = http.MethodPost, -1, new(url.URL)
	r.Body = io.NopCloser(body)
	return r
}

// bodyKey returns the key that reads bodies of a type.
func bodyKey(contentType, field string, maxBytes int64) keyfunc.Key {
	if strings.Contains(strings.ToLower(contentType), "form") {
		return keyfunc.BodyForm(field, maxBytes)
	}
	return keyfunc.BodyJSON(field, maxBytes)
}

func TestBody(t *testing.T) {
	for _, tc := range []struct{ name, contentType, body, want string }{
		{"JSON", jsonType, `{"email":"alice@example.com"}`, "alice@example.com"},
		{"JSON among others", jsonType, ` { "a":[{"email":"x\"}"}], "email" : "alice" , "b":{"email":"y"} } ` + "\n", "alice"},
		{"JSON with charset", jsonType + "; charset=utf-8", `{"email":"alice"}`, "alice"},
		{"JSON with a charset in capitals", jsonType + `; charset="UTF-8"; a=b`, `{"email":"alice"}`, "alice"},
		{"JSON type as long as allowed", jsonType + "; a=" + strings.Repeat("b", 256-len(jsonType)-4), `{"email":"alice"}`, "alice"},
		{"JSON type in capitals", "Application/JSON", `{"email":"alice"}`, "alice"},
		{"JSON of another kind", "application/vnd.api+json", `{"email":"alice"}`, "alice"},
		{"JSON escapes make no other key", jsonType, `{"em\u0061il":"\u0061lice"}`, "alice"},
		{"JSON name in another case, as encoding/json takes it", jsonType, `{"EMail":"alice"}`, "alice"},
		{"JSON number", jsonType, `{"email":1234567890123456789}`, "1234567890123456789"},
		{"JSON negative number", jsonType, `{"email":-1 }`, "-1"},
		{"JSON zero", jsonType, `{"email":0}`, "0"},
		{"JSON minus zero", jsonType, `{"email":-0}`, "0"},
		{"JSON values of every kind before", jsonType, `{"a":1.5e-3,"b":true,"c":null,"d":"\\","e":{},"f":[],"g":[{"h":"]}"}],"email":"alice"}`, "alice"},
		{"JSON names that resemble it in part", jsonType, `{"e":"x","emai":"x","emails":"x","email":"alice","":"x"}`, "alice"},
		{"JSON with an ampersand", jsonType, `{"email":"alice","url":"/?a=b&c=d&mail=x"}`, "alice"},
		{"blanks and case make no other key", jsonType, `{"email":" \tAlice@Example.COM\n"}`, "alice@example.com"},
		{"letters that fold to ASCII make no other key", jsonType, `{"email":"\u017fam\u212aelly"}`, "samkelly"},
		{"form", formType, "a=b&email=alice%40example.com", "alice@example.com"},
		{"form with charset", formType + ";charset=UTF-8", "email=alice", "alice"},
		{"form, blanks and case make no other key", formType, "email=+ALICE+", "alice"},
		{"form, escapes in the name", formType, "%65mail=alice", "alice"},
		{"form with an equals sign", formType, "email=a=b", "a=b"},
		{"form with something malformed elsewhere, which ParseForm reads past", formType, "email=alice&a=%zz", "alice"},
		{"exactly as long as allowed", jsonType, `{"email":"alice"}` + strings.Repeat(" ", 200-17), "alice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := post(tc.contentType, strings.NewReader(tc.body))
			for range 2 { // two rules may read it
				wantKey(t, bodyKey(tc.contentType, "email", 200), r, tc.want)
			}
			if got, err := io.ReadAll(r.Body); string(got) != tc.body || err != nil {
				t.Errorf("the handler reads %q, %v", got, err)
			}
			wantKey(t, bodyKey(tc.contentType, "email", 200), r, tc.want) // after the handler, too
		})
	}
}

// What is not there has no key, which Optional and First may pass over.
func TestBodyWithoutTheField(t *testing.T) {
	for _, tc := range []struct{ name, contentType, body string }{
		{"empty body", jsonType, ""},
		{"field missing", jsonType, `{}`},
		{"field deeper", jsonType, `{"user":{"email":"alice"}}`},
		{"field empty", jsonType, `{"email":""}`},
		{"field blank", jsonType, `{"email":" \n"}`},
		{"JSON null", jsonType, `{"email":null}`},
		{"form field missing", formType, "user=alice"},
		{"form field empty", formType, "email=+&a=b"},
		{"two levels", jsonType, `{"user":null}`},
	} {
		for _, k := range []keyfunc.Key{keyfunc.BodyJSON("email", 200), keyfunc.BodyForm("email", 200), keyfunc.BodyJSON("/user/name/first", 200)} {
			r := post(tc.contentType, strings.NewReader(tc.body))
			wantErr(t, k, r, keyfunc.ErrNoKey)
			if got, err := io.ReadAll(r.Body); string(got) != tc.body || err != nil {
				t.Errorf("%s: the handler reads %q, %v", tc.name, got, err)
			}
		}
	}
}

// Another program could find an account where the key finds none. That it finds no other one is in
// [TestBodyPolyglots].
func TestBodyFailsClosed(t *testing.T) {
	for _, tc := range []struct{ name, contentType, body string }{
		{"other type", "text/plain", `{"email":"alice"}`},
		{"no type", "", `{"email":"alice"}`},
		{"JSON type with a broken parameter", jsonType + "; a", `{"email":"alice"}`},
		{"JSON in UTF-7", jsonType + "; charset=utf-7", `{"email":"alice"}`},
		{"JSON in UTF-16", jsonType + "; charset=utf-16", `{"email":"alice"}`},
		{"two types in one line", jsonType + ", " + formType, `{"email":"alice"}`},
		{"multipart", "multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=email\r\n\r\nalice\r\n--x--"},
		{"JSON object", jsonType, `{"email":{}}`},
		{"JSON list", jsonType, `{"email":["alice"]}`},
		{"JSON true", jsonType, `{"email":true}`},
		{"number with a second spelling", jsonType, `{"email":1.0}`},
		{"number with an exponent", jsonType, `{"email":1e3}`},
		{"no object", jsonType, `["email","alice"]`},
		{"a string", jsonType, `"email"`},
		{"malformed", jsonType, `{"email":"alice"`},
		{"malformed later", jsonType, `{"email":"alice",}`},
		{"JSON type that is long", jsonType + "; a=" + strings.Repeat("b", 257-len(jsonType)-4), `{"email":"alice"}`},
		{"something after it", jsonType, `{"email":"alice"}{"email":"bob"}`},
		{"garbage after it", jsonType, `{"email":"alice"}]`},
		{"byte order mark", jsonType, "\ufeff" + `{"email":"alice"}`},
		{"nested without end", jsonType, strings.Repeat(`{"a":`, 40)},
		{"form field malformed", formType, "email=%zz"},
		{"form with semicolons", formType, "email=alice;email=bob"},
		{"form names have their case", formType, "EMAIL=alice"},
		{"form that is JSON, too, after blanks", formType, "\r\n\t " + `{"email":"alice"}&email=mallory`},
		{"form that is JSON, too, after a byte order mark", formType, "\ufeff" + `{"email":"alice"}&email=mallory`},
		{"longer than allowed", jsonType, `{"email":"alice"}` + strings.Repeat(" ", 201-17)},
		{"far longer than allowed", formType, "email=alice&a=" + strings.Repeat("a", 1<<20)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, length := range []int64{-1, int64(len(tc.body))} {
				for _, k := range []keyfunc.Key{keyfunc.BodyJSON("email", 200), keyfunc.BodyForm("email", 200)} {
					r := post(tc.contentType, strings.NewReader(tc.body))
					r.ContentLength = length
					if fmt.Sprint(k) == fmt.Sprint(bodyKey(tc.contentType, "email", 200)) {
						wantRefused(t, k, r)
					} else if key, err := k.Resolve(r); err == nil {
						t.Errorf("%v: got %q", k, key)
					}
					if got, err := io.ReadAll(r.Body); string(got) != tc.body || err != nil {
						t.Errorf("the handler reads %.100q, %v", got, err)
					}
				}
			}
		})
	}
	wantRefused(t, keyfunc.BodyJSON("tos", 200), post(jsonType, strings.NewReader(`{"tos":"a","to`+"\u017f"+`":"b"}`)))
}

// A handler that calls FormValue reads the query, too.
func TestBodyFieldInTheQueryIsNoKey(t *testing.T) {
	for _, query := range []string{"email=victim", "a=b&email=", "email", "EMAIL=victim", "%65mail=victim", "a=b;email=victim", "email=alice"} {
		for contentType, body := range map[string]string{jsonType: `{"email":"alice"}`, formType: "email=alice"} {
			r := post(contentType, strings.NewReader(body))
			r.URL.RawQuery = query
			wantRefused(t, keyfunc.BodyJSON("email", 200), r)
			wantRefused(t, keyfunc.BodyForm("email", 200), r)
			r.URL.RawQuery = "a=b&emails=x&%zz=y"
			wantKey(t, bodyKey(contentType, "email", 200), r, "alice")
			r.URL = nil // as a request that is none of a server's may have it
			wantKey(t, bodyKey(contentType, "email", 200), r, "alice")
		}
		r := with("Content-Type", formType)
		r.URL = &url.URL{RawQuery: query}
		wantRefused(t, keyfunc.BodyForm("email", 200), r)
		wantErr(t, keyfunc.BodyJSON("email", 200), r, keyfunc.ErrNoKey) // without a body, a JSON handler has none
	}
}

// ParseForm reads the bodies of these methods only, and of all others the query.
func TestBodyFormIsThatOfParseForm(t *testing.T) {
	for _, method := range []string{"GET", "HEAD", "DELETE", "OPTIONS", "QUERY", "", "post"} {
		r := post(formType, strings.NewReader("email=alice"))
		r.Method = method
		wantRefused(t, keyfunc.BodyForm("email", 200), r)
	}
	for _, method := range []string{"POST", "PUT", "PATCH"} {
		r := post(formType, strings.NewReader("email=alice"))
		r.Method = method
		wantKey(t, keyfunc.BodyForm("email", 200), r, "alice")
	}
	r := post(jsonType, strings.NewReader(`{"email":"alice"}`))
	r.Method = "DELETE"
	wantKey(t, keyfunc.BodyJSON("email", 200), r, "alice")
}

func TestBodyIsNotReadWithoutNeed(t *testing.T) {
	untouched := iotest.ErrReader(errors.New("read"))
	for name, header := range map[string]http.Header{
		"other type":                {"Content-Type": {"text/plain"}},
		"several types":             {"Content-Type": {jsonType, formType}},
		"compressed":                {"Content-Type": {jsonType}, "Content-Encoding": {"gzip"}},
		"compressed in a 2nd line":  {"Content-Type": {jsonType}, "Content-Encoding": {"", "gzip"}},
		"a charset that is another": {"Content-Type": {jsonType + "; charset=utf-7"}},
		"a type that is long":       {"Content-Type": {jsonType + ";" + strings.Repeat("a", 256-len(jsonType))}},
	} {
		r := post("", untouched)
		r.Header = header
		before := r.Body
		wantRefused(t, keyfunc.BodyJSON("email", 64), r)
		wantRefused(t, keyfunc.BodyForm("email", 64), r)
		if r.Body != before {
			t.Errorf("%s: the body was read", name)
		}
	}
	r := post(jsonType, untouched)
	before := r.Body
	r.ContentLength = 65
	wantRefused(t, keyfunc.BodyJSON("email", 64), r)
	if r.Body != before {
		t.Error("known to be too long: the body was read")
	}
	for _, none := range []io.ReadCloser{nil, http.NoBody} {
		r.Body, r.ContentLength = none, 0
		wantErr(t, keyfunc.BodyJSON("email", 64), r, keyfunc.ErrNoKey)
		if r.Body != none {
			t.Error("no body: now there is one")
		}
	}
}

func TestBodyPassesReadErrorsOn(t *testing.T) {
	for _, sent := range []string{"", `{"email":`, `{"email":"alice"}`, strings.Repeat(" ", 80)} {
		r := post(jsonType, io.MultiReader(strings.NewReader(sent), iotest.ErrReader(errBroken)))
		wantRefused(t, keyfunc.BodyJSON("email", 64), r)
		if got, err := io.ReadAll(r.Body); string(got) != sent || !errors.Is(err, errBroken) {
			t.Errorf("the handler reads %q, %v; want %q and the error", got, err, sent)
		}
	}
}

func TestBodyIsRestoredExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sent := rapid.SliceOfN(rapid.Byte(), 0, 128).Draw(t, "sent")
		var body io.Reader = bytes.NewReader(sent)
		switch rapid.IntRange(0, 3).Draw(t, "reader") {
		case 1:
			body = iotest.OneByteReader(body)
		case 2:
			body = iotest.DataErrReader(body)
		case 3:
			body = iotest.HalfReader(body)
		}
		contentType := rapid.SampledFrom([]string{jsonType, formType}).Draw(t, "type")
		r := post(contentType, body)
		for range rapid.IntRange(1, 3).Draw(t, "rules") {
			_, _ = bodyKey(contentType, "a", rapid.Int64Range(64, 140).Draw(t, "most")).Resolve(r)
		}
		if err := iotest.TestReader(r.Body, sent); err != nil {
			t.Fatal(err)
		}
	})
}

func TestBodyOfARealServer(t *testing.T) {
	sent := `{"email":"alice"}` + strings.Repeat(" ", 1<<16)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, short := keyfunc.BodyJSON("email", 100).Resolve(r)
		key, err := keyfunc.BodyJSON("email", 1<<20).Resolve(r)
		got, readErr := io.ReadAll(r.Body)
		if _, refused := errors.AsType[*keyfunc.StatusError](short); !refused || key != "alice" || string(got) != sent || err != nil || readErr != nil {
			t.Errorf("%v; got %q, %v; %d bytes, %v", short, key, err, len(got), readErr)
		}
		if err := r.Body.Close(); err != nil {
			t.Error(err)
		}
		if _, err := r.Body.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("after Close: %v", err)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer srv.Close()
	for _, body := range []io.Reader{strings.NewReader(sent), iotest.OneByteReader(strings.NewReader(sent))} { // with and without length
		resp, err := srv.Client().Post(srv.URL, jsonType, body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusNoContent {
			t.Error(resp.Status)
		}
	}
}

// Goroutines that share a request get its key without a data race: run with -race.
func TestBodyOfOneRequestInManyGoroutines(t *testing.T) {
	r := post(jsonType, iotest.OneByteReader(strings.NewReader(`{"email":"alice","tenant":"acme"}`+strings.Repeat(" ", 40))))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { wantKey(t, keyfunc.BodyJSON("email", 100), r, "alice") })
		all.Go(func() { wantKey(t, keyfunc.BodyJSON("tenant", 1000), r, "acme") })
		all.Go(func() { wantRefused(t, keyfunc.BodyJSON("tenant", 64), r) })
	}
	all.Wait()
	if got, err := io.ReadAll(r.Body); len(got) != 73 || err != nil {
		t.Errorf("the handler reads %q, %v", got, err)
	}
}

// Values that strings.EqualFold calls equal are one key.
func TestBodyValuesThatFoldAreOneKey(t *testing.T) {
	key := func(r rune) string {
		body := `{"email":"x` + string(r) + `"}`
		return mustKey(t, keyfunc.BodyJSON("email", 100), post(jsonType, strings.NewReader(body)))
	}
	for r := rune(0x20); r <= unicode.MaxRune; r++ {
		if r == '"' || r == '\\' || r == '\u0345' || unicode.SimpleFold(r) == r || unicode.SimpleFold(r) == '\u0345' { // a mark: no key
			continue
		}
		if one, other := key(r), key(unicode.SimpleFold(r)); one != other {
			t.Errorf("%q and %q", one, other)
		}
	}
}

// What databases ignore, and spellings of a number, make no other account.
func TestBodyValuesHaveOneSpelling(t *testing.T) {
	for value, want := range map[string]string{
		"v\u0001ictim": "", "vic\x00tim": "", "vic\u200btim": "", "vic\u200dtim": "", "vic\u202etim": "", "vic\u2060tim": "", "vic\ufefftim": "", "vic\u00adtim": "", "vic\U000e0001tim": "",
		"vi\u0301ctim": "", "\u0301victim": "", "victim\u034f": "", "vic\ufe0ftim": "", "vic\u3164tim": "", "vic\u00a0tim": "", "vic\ue000tim": "", "vic\ufffdtim": "",
		"vi\u05b0ctim": "", "victim\u0e48": "", "vi\u093cctim": "", "в\u0483и": "", "7\u0e48": "", "か\u3099": "", "1\ufe0f\u20e3": "", // marks of other scripts, and of none
		"हिन्दी": "हिन्दी", "ที่นี่": "ที่นี่", "שָׁלוֹם": "שָׁלוֹם", "தமிழ்": "தமிழ்", "Víctor": "vÍctor", "ᾶθ": "ᾶΘ", "李": "李", "a b": "a b", "🙂": "🙂",
		"7": "7", "07": "7", "007": "7", "+7": "7", "+007": "7", "-7": "-7", "-07": "-7", "0": "0", "-0": "0", "000": "0", "+491701234567": "491701234567", "18446744073709551616000": "18446744073709551616000",
		"7.0": "", "7e0": "", "70E-1": "", ".7e1": "", "7.": "", "0x7p0": "", "1e999": "",
		"7a": "7a", "nan": "nan", "Infinity": "infinity", "e5": "e5", "1.2.3": "1.2.3", "+": "+", "7 7": "7 7", "++7": "++7",
	} {
		text, err := json.Marshal(map[string]string{"email": value})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []*http.Request{post(jsonType, bytes.NewReader(text)), post(formType, strings.NewReader(url.Values{"email": {value}}.Encode()))} {
			k := bodyKey(r.Header.Get("Content-Type"), "email", 200)
			if want == "" {
				wantRefused(t, k, r)
			} else {
				wantKey(t, k, r, want)
			}
		}
	}
	wantRefused(t, keyfunc.BodyForm("email", 200), post(formType, strings.NewReader("email=vic%fftim")))
}

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
