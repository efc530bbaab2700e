package keyfunc_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

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
	r.Method, r.ContentLength = http.MethodPost, -1
	r.Body = io.NopCloser(body)
	return r
}

func TestBody(t *testing.T) {
	f := keyfunc.Body("email", 200)
	for _, tc := range []struct{ name, contentType, body, want string }{
		{"JSON", jsonType, `{"email":"alice@example.com"}`, "alice@example.com"},
		{"JSON among others", jsonType, ` { "a":[{"email":"x"}], "email" : "alice" , "b":{"email":"y"} } ` + "\n", "alice"},
		{"JSON with charset", jsonType + "; charset=utf-8", `{"email":"alice"}`, "alice"},
		{"JSON type in capitals", "Application/JSON", `{"email":"alice"}`, "alice"},
		{"JSON type with a broken parameter", jsonType + "; a", `{"email":"alice"}`, "alice"},
		{"JSON of another kind", "application/vnd.api+json", `{"email":"alice"}`, "alice"},
		{"JSON escapes make no other key", jsonType, `{"em\u0061il":"\u0061lice"}`, "alice"},
		{"JSON name in another case, as encoding/json takes it", jsonType, `{"EMail":"alice"}`, "alice"},
		{"JSON number", jsonType, `{"email":1234567890123456789}`, "1234567890123456789"},
		{"blanks and case make no other key", jsonType, `{"email":" \tAlice@Example.COM\n"}`, "alice@example.com"},
		{"form", formType, "a=b&email=alice%40example.com", "alice@example.com"},
		{"form with charset", formType + ";charset=UTF-8", "email=alice", "alice"},
		{"form, blanks and case make no other key", formType, "email=+ALICE+", "alice"},
		{"exactly as long as allowed", jsonType, `{"email":"alice"}` + strings.Repeat(" ", 200-17), "alice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := post(tc.contentType, strings.NewReader(tc.body))
			for range 2 { // two rules may read it
				wantKey(t, f, r, tc.want)
			}
			if got, err := io.ReadAll(r.Body); string(got) != tc.body || err != nil {
				t.Errorf("the handler reads %q, %v", got, err)
			}
		})
	}
}

func TestBodyFailsClosed(t *testing.T) {
	f := keyfunc.Body("email", 200)
	for _, tc := range []struct{ name, contentType, body string }{
		{"other type", "text/plain", `{"email":"alice"}`},
		{"no type", "", `{"email":"alice"}`},
		{"multipart", "multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=email\r\n\r\nalice\r\n--x--"},
		{"empty body", jsonType, ""},
		{"field missing", jsonType, `{}`},
		{"field deeper", jsonType, `{"user":{"email":"alice"}}`},
		{"field empty", jsonType, `{"email":""}`},
		{"field blank", jsonType, `{"email":" \n"}`},
		{"JSON field twice", jsonType, `{"email":"mallory","email":"alice"}`},
		{"JSON field twice in another case", jsonType, `{"email":"mallory","EMAIL":"alice"}`},
		{"JSON field twice, folded", jsonType, `{"tos":"a","to` + "\u017f" + `":"b"}`},
		{"JSON null", jsonType, `{"email":null}`},
		{"JSON object", jsonType, `{"email":{}}`},
		{"JSON list", jsonType, `{"email":["alice"]}`},
		{"JSON true", jsonType, `{"email":true}`},
		{"number with a second spelling", jsonType, `{"email":1.0}`},
		{"number with an exponent", jsonType, `{"email":1e3}`},
		{"minus nothing", jsonType, `{"email":-0}`},
		{"no object", jsonType, `["email","alice"]`},
		{"malformed", jsonType, `{"email":"alice"`},
		{"malformed later", jsonType, `{"email":"alice",}`},
		{"something after it", jsonType, `{"email":"alice"}{"email":"bob"}`},
		{"garbage after it", jsonType, `{"email":"alice"}]`},
		{"nested without end", jsonType, strings.Repeat(`{"a":`, 40)},
		{"form field missing", formType, "user=alice"},
		{"form field twice", formType, "email=mallory&email=alice"},
		{"form malformed", formType, "email=alice&a=%zz"},
		{"form with semicolons", formType, "email=alice;email=bob"},
		{"form names have their case", formType, "EMAIL=alice"},
		{"longer than allowed", jsonType, `{"email":"alice"}` + strings.Repeat(" ", 201-17)},
		{"far longer than allowed", formType, "email=alice&a=" + strings.Repeat("a", 1<<20)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, length := range []int64{-1, int64(len(tc.body))} {
				r := post(tc.contentType, strings.NewReader(tc.body))
				r.ContentLength = length
				wantErr(t, f, r, keyfunc.ErrNoKey)
				if tc.name == "JSON field twice, folded" {
					wantErr(t, keyfunc.Body("tos", 200), r, keyfunc.ErrNoKey)
				}
				if got, err := io.ReadAll(r.Body); string(got) != tc.body || err != nil {
					t.Errorf("the handler reads %.100q, %v", got, err)
				}
			}
		})
	}
}

func TestBodyIsNotReadWithoutNeed(t *testing.T) {
	untouched := iotest.ErrReader(errors.New("read"))
	for name, header := range map[string]http.Header{
		"other type":    {"Content-Type": {"text/plain"}},
		"several types": {"Content-Type": {jsonType, formType}},
		"compressed":    {"Content-Type": {jsonType}, "Content-Encoding": {"gzip"}},
	} {
		r := post("", untouched)
		r.Header = header
		before := r.Body
		wantErr(t, keyfunc.Body("email", 10), r, keyfunc.ErrNoKey)
		if r.Body != before {
			t.Errorf("%s: the body was read", name)
		}
	}
	r := post(jsonType, untouched)
	before := r.Body
	r.ContentLength = 11
	wantErr(t, keyfunc.Body("email", 10), r, keyfunc.ErrNoKey)
	if r.Body != before {
		t.Error("known to be too long: the body was read")
	}
	for _, none := range []io.ReadCloser{nil, http.NoBody} {
		r.Body, r.ContentLength = none, 0
		wantErr(t, keyfunc.Body("email", 10), r, keyfunc.ErrNoKey)
		if r.Body != none {
			t.Error("no body: now there is one")
		}
	}
}

func TestBodyPassesReadErrorsOn(t *testing.T) {
	for _, sent := range []string{"", `{"email":`, `{"email":"alice"}`, strings.Repeat(" ", 30)} {
		r := post(jsonType, io.MultiReader(strings.NewReader(sent), iotest.ErrReader(errBroken)))
		wantErr(t, keyfunc.Body("email", 20), r, keyfunc.ErrNoKey)
		if got, err := io.ReadAll(r.Body); string(got) != sent || !errors.Is(err, errBroken) {
			t.Errorf("the handler reads %q, %v; want %q and the error", got, err, sent)
		}
	}

	r := post(jsonType, strings.NewReader(strings.Repeat(" ", 30)))
	r.Body = http.MaxBytesReader(nil, r.Body, 10)
	_, err := keyfunc.Body("email", 20)(r)
	if _, ok := errors.AsType[*http.MaxBytesError](err); !ok || !errors.Is(err, keyfunc.ErrNoKey) {
		t.Errorf("got %v", err)
	}
}

func TestBodyIsRestoredExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sent := rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "sent")
		var body io.Reader = bytes.NewReader(sent)
		switch rapid.IntRange(0, 3).Draw(t, "reader") {
		case 1:
			body = iotest.OneByteReader(body)
		case 2:
			body = iotest.DataErrReader(body)
		case 3:
			body = iotest.HalfReader(body)
		}
		r := post(rapid.SampledFrom([]string{jsonType, formType}).Draw(t, "type"), body)
		for range rapid.IntRange(1, 3).Draw(t, "rules") {
			_, _ = keyfunc.Body("a", rapid.Int64Range(1, 80).Draw(t, "most"))(r)
		}
		if err := iotest.TestReader(r.Body, sent); err != nil {
			t.Fatal(err)
		}
	})
}

func TestBodyOfARealServer(t *testing.T) {
	sent := `{"email":"alice"}` + strings.Repeat(" ", 1<<16)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, short := keyfunc.Body("email", 100)(r)
		key, err := keyfunc.Body("email", 1<<20)(r)
		got, readErr := io.ReadAll(r.Body)
		if !errors.Is(short, keyfunc.ErrNoKey) || key != "alice" || string(got) != sent || err != nil || readErr != nil {
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

func TestBodyMistakesAreFaults(t *testing.T) {
	wantFault(t, keyfunc.Body("", 0), "keyfunc: Body: the name of the field is empty\nkeyfunc: Body: at most 0 bytes: must be positive")
	wantFault(t, keyfunc.Body("email", -1), "keyfunc: Body: at most -1 bytes: must be positive")
}

func FuzzBody(f *testing.F) {
	f.Add(true, []byte(`{"email":"alice","a":[1,{"email":2}]}`))
	f.Add(true, []byte(`{"email":"a","EMAIL":"b"}`))
	f.Add(false, []byte("email=alice&a=%20"))
	f.Fuzz(func(t *testing.T, isJSON bool, sent []byte) {
		contentType := formType
		if isJSON {
			contentType = jsonType
		}
		r := post(contentType, bytes.NewReader(sent))
		key, err := keyfunc.Body("email", 64)(r)
		if (key == "") != (err != nil) || err != nil && !errors.Is(err, keyfunc.ErrNoKey) {
			t.Errorf("got %q, %v", key, err)
		}
		if got, err := io.ReadAll(r.Body); !bytes.Equal(got, sent) || err != nil {
			t.Errorf("the handler reads %q, %v", got, err)
		}
	})
}
