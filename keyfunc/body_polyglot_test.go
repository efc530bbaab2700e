package keyfunc_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/keyfunc"
)

// readers are the ways in which handlers read an account from a request.
var readers = map[string]func(*http.Request) string{
	"Decoder into a struct": func(r *http.Request) string {
		var in struct{ Email string }
		_ = json.NewDecoder(r.Body).Decode(&in)
		return in.Email
	},
	"Unmarshal into a struct": func(r *http.Request) string {
		var in struct {
			Address string `json:"email"`
		}
		body, _ := io.ReadAll(r.Body)
		if json.Unmarshal(body, &in) != nil {
			return ""
		}
		return in.Address
	},
	"Decoder into a number": func(r *http.Request) string {
		var in struct{ Email json.Number }
		_ = json.NewDecoder(r.Body).Decode(&in)
		return in.Email.String()
	},
	"Decoder into a map": func(r *http.Request) string {
		var in map[string]any
		_ = json.NewDecoder(r.Body).Decode(&in)
		email, _ := in["email"].(string)
		return email
	},
	"a decoder that ignores case, dashes and underscores": func(r *http.Request) (email string) {
		in := map[string]any{}
		_ = json.NewDecoder(r.Body).Decode(&in)
		for name, value := range in {
			if strings.EqualFold(strings.NewReplacer("-", "", "_", "").Replace(name), "email") {
				email, _ = value.(string)
			}
		}
		return email
	},
	"FormValue":     func(r *http.Request) string { return r.FormValue("email") },
	"PostFormValue": func(r *http.Request) string { return r.PostFormValue("email") },
	"ParseForm, last value, any case": func(r *http.Request) (email string) {
		_ = r.ParseForm()
		for name, values := range r.Form {
			if strings.EqualFold(name, "email") {
				email = values[len(values)-1]
			}
		}
		return email
	},
	"the query": func(r *http.Request) string { return r.URL.Query().Get("email") },
	"the query with semicolons": func(r *http.Request) string {
		query, _ := url.ParseQuery(strings.ReplaceAll(r.URL.RawQuery, ";", "&"))
		return query.Get("email")
	},
	"the body as a query, whatever its type": func(r *http.Request) string {
		body, _ := io.ReadAll(r.Body)
		form, _ := url.ParseQuery(string(body))
		return form.Get("email")
	},
}

type sent struct{ method, contentType, query, body string }

func (s sent) request() *http.Request {
	r := post(s.contentType, strings.NewReader(s.body))
	r.Method, r.URL.RawQuery = s.method, s.query
	return r
}

// wantNoOtherAccount wants each key of a request to be that of the account which a
// handler reads, however it reads it. Without a key no handler may read one, unless the
// request is refused.
func wantNoOtherAccount(t rapid.TB, s sent) (keys int) {
	t.Helper()
	for _, k := range []keyfunc.Key{keyfunc.BodyJSON("email", 1<<10), keyfunc.BodyForm("email", 1<<10)} {
		got, err := k.Resolve(s.request())
		_, refused := errors.AsType[*keyfunc.StatusError](err)
		if err != nil && (got != "" || refused == errors.Is(err, keyfunc.ErrNoKey)) {
			t.Errorf("%+q: %v: got %q, %v", s, k, got, err)
		}
		if refused {
			continue
		}
		if err == nil {
			keys++
		}
		for name, read := range readers {
			account := strings.TrimSpace(read(s.request()))
			if json := strings.Contains(strings.ToLower(name), "decoder") || strings.Contains(name, "Unmarshal"); err != nil && json != strings.HasPrefix(fmt.Sprint(k), "bodyjson") {
				continue // without a key, no account is there for those who read such bodies
			}
			if strings.Trim(account, "0123456789") == "" {
				account = strings.TrimLeft(account, "0")
			}
			if account != "" && !strings.EqualFold(account, got) {
				t.Errorf("%+q: %v: key %q; by %s the handler reads %q", s, k, got, name, account)
			}
		}
	}
	return keys
}

// One body means different things to two parsers: no client may be counted as
// another than the one whom the handler serves.
func TestBodyPolyglots(t *testing.T) {
	bodies := []string{
		`{"email":"victim"}`,
		`{"email":"victim","x":"&email=mallory&"}`,
		`{"email":"victim","x":"&email=mallory"}`,
		`{"email":"victim","x":"&em%61il=mallory&"}`,
		`{"email":"victim","x":"=&email=mallory&"}`,
		` {"email":"victim"}&email=mallory`,
		`{"email":"victim"}&email=mallory`,
		`{"email":"victim"}` + "\n" + `{"email":"mallory"}`,
		`{"email":"mallory","EMAIL":"victim"}`,
		`{"email":"mallory","eMAıL":"victim"}`,
		`{"email":"mallory","e\u006dail":"victim"}`,
		`{"x":{"email":"mallory"},"email":"victim"}`,
		`{"email":"mallory","x":{"email":"victim"}}`,
		`{"x":"\"email\":\"mallory\"","email":"victim"}`,
		`{"x":"\\","email":"victim","y":"\\\""}`,
		`{"email":"mallory","e-mail":"victim"}`, `{"E_mail":"victim","email":"mallory"}`, `{"e-mail":"victim"}`,
		`{"email":"\ud83d\ude00\ud83d\"\/\b\f\n\r\tx\u0041\\"}`, `{"email":"\ude00\ud83d\u00e9\uD83D\uDE00"}`, "{\"email\":\"a\xff\"}",
		`{"email":7}`, `{"email":7.0}`, `{"email":"7"}`, `{"email":null}`, `{"email":["victim"]}`,
		`[{"email":"victim"}]`, `"email=victim"`, `null`, `email=victim`, `&email=victim&`,
		"\ufeff" + `{"email":"victim"}`, "\ufeffemail=victim",
		`email=mallory&email=victim`, `email=mallory&EMAIL=victim`, `email=mallory&%65mail=victim`, `email=mallory&em%61il=victim`,
		`email=mallory;email=victim`, `a=1;email=victim`, `email=victim;a=1`, `email=mallory&a=1;email=victim`,
		`email`, `email=`, `email==victim`, `=email=victim`, `email=%zz`, `email=%76ictim`, `%zz=1&email=victim`, `email=+victim+`,
		`email=victim%00`, `email%00=mallory&email=victim`, ``, ` `, `{`, `{}`,
	}
	types := []string{
		jsonType, formType, jsonType + "; charset=utf-8", formType + "; charset=utf-8", "application/vnd.api+json", "Application/JSON ; a=b",
		formType + "; a", jsonType + "; a", jsonType + "," + formType, formType + "," + jsonType, formType + "; charset=utf-7",
		"multipart/form-data; boundary=x", "text/plain", "", "text/json", formType + ";", "application/x-www-form-urlencoded+json",
	}
	queries := []string{"", "email=victim", "a=b", "EMAIL=victim", "a=b;email=victim", "%65mail=victim", "email", "email=%zz&email=victim"}
	keys := 0
	for _, method := range []string{"POST", "PUT", "PATCH", "GET", "DELETE"} {
		for _, contentType := range types {
			for _, query := range queries {
				for _, body := range bodies {
					keys += wantNoOtherAccount(t, sent{method, contentType, query, body})
				}
			}
		}
	}
	if keys < 500 {
		t.Errorf("only %d requests had a key", keys)
	}
}

// Bodies made of pieces of JSON and of forms, with types and queries of both.
func TestBodiesOfAllSorts(t *testing.T) {
	name := rapid.SampledFrom([]string{"email", "email", "email", "email", "x", "y", "EMAIL", "e-mail", "e_mail", "emaıl", `em\u0061il`, "em%61il", "x", "", "email\\"})
	value := rapid.SampledFrom([]string{"victim", "victim", "mallory", "mallory", " r1 ", "7", "07", "r%31", "r\u200b1", `r\u0031`, "&email=r2&", ";email=r2", `{\"email\":\"r3\"}`, ""})
	field := rapid.Custom(func(t *rapid.T) string {
		n, v := name.Draw(t, "name"), value.Draw(t, "value")
		return rapid.SampledFrom([]string{`"` + n + `":"` + v + `"`, `"` + n + `":"` + v + `"`, `"` + n + `":"` + v + `"`, `"` + n + `":7`, `"` + n + `":null`, `"` + n + `":{"email":"` + v + `"}`, n + "=" + v, n, `"` + n + `" : ["` + v + `"]`}).Draw(t, "field")
	})
	around := rapid.SampledFrom([][3]string{{"{", ",", "}"}, {"{", ",", "}"}, {"{", ",", "}"}, {"{", ", ", "}"}, {" {", ",", "}\n"}, {"", "&", ""}, {"", ";", ""}, {"[{", ",", "}]"}, {"{", ",", "}{}"}, {"\ufeff{", ",", "}"}, {"", "", ""}})
	media := rapid.SampledFrom([]string{jsonType, jsonType, jsonType, jsonType, jsonType, formType, formType, "application/a+json", "text/plain", "", jsonType + "; charset=utf-16"})
	keys := 0
	rapid.Check(t, func(t *rapid.T) {
		for range 20 {
			a := around.Draw(t, "around")
			keys += wantNoOtherAccount(t, sent{
				rapid.SampledFrom([]string{"POST", "POST", "PUT", "DELETE"}).Draw(t, "method"), media.Draw(t, "type"), rapid.SampledFrom([]string{"", "", "", "", "", "a=b", "email=r4", "a;EMAIL=r4"}).Draw(t, "query"),
				a[0] + strings.Join(rapid.SliceOfN(field, 0, 3).Draw(t, "fields"), a[1]) + a[2],
			})
		}
	})
	if keys < 10 && !testing.Short() { // which draws a fifth
		t.Errorf("only %d requests had a key", keys)
	}
}

// nestedReaders are the ways in which handlers read the tool of a call.
var nestedReaders = map[string]func(*http.Request) string{
	"Decoder into a struct": func(r *http.Request) string {
		var in struct{ Params struct{ Name string } }
		_ = json.NewDecoder(r.Body).Decode(&in)
		return in.Params.Name
	},
	"Decoder into a map": func(r *http.Request) string {
		var in map[string]map[string]any
		_ = json.NewDecoder(r.Body).Decode(&in)
		name, _ := in["params"]["name"].(string)
		return name
	},
	"FormValue":              func(r *http.Request) string { return r.FormValue("name") },
	"FormValue, with dots":   func(r *http.Request) string { return r.FormValue("params.name") },
	"FormValue, in brackets": func(r *http.Request) string { return r.FormValue("params[name]") },
	"the body as a query": func(r *http.Request) string {
		body, _ := io.ReadAll(r.Body)
		form, _ := url.ParseQuery(string(body))
		return form.Get("params.name")
	},
}

// Who names a cheap tool to the limiter and an expensive one to the handler calls the
// expensive one without its limit.
func TestBodyPointer(t *testing.T) {
	const pointer = "/params/name"
	for _, tc := range []struct{ pointer, query, body, want string }{
		{pointer, "", `{"jsonrpc":"2.0","id":1,"params":{"name":"Search","arguments":{"name":"x","q":["\"}"]}}}`, "search"},
		{pointer, "", `{"name":"x","params":{"a":{"params":{"name":"y"}},"name":7}}`, "7"},
		{pointer, "", `{"Params":{"NAME":"search"}}`, "search"}, // as encoding/json takes it
		{pointer, "a=b", ` { "p\u0061rams" : { "n\u0061me" : "search" } } `, "search"},
		{"/a/b/c", "", `{"a":{"b":{"c":"x"},"c":"y"},"c":"z"}`, "x"},
		{"/email", "", `{"email":"alice"}`, "alice"},
		{"/~0a~1b~01/c", "", `{"~a/b~1":{"c":"x"}}`, "x"},

		{pointer, "", `{"params":{"name":"cheap"},"params":{"name":"dear"}}`, ""},
		{pointer, "", `{"params":{"name":"cheap"},"params":{}}`, ""},
		{pointer, "", `{"params":{"name":"cheap"},"PARAMS":{"name":"dear"}}`, ""},
		{pointer, "", `{"params":{"name":"cheap"},"par_ams":{"name":"dear"}}`, ""},
		{pointer, "", `{"params":{"name":"cheap","name":"dear"}}`, ""},
		{pointer, "", `{"params":{"name":"cheap","name":"dear"}}`, ""},
		{pointer, "", `{"params":{"name":"cheap","Na-me":"dear"}}`, ""},
		{pointer, "", `{"params":{"na-me":"cheap"}}`, ""},
		{pointer, "", `{"pa_rams":{"name":"cheap"}}`, ""},
		{pointer, "name=dear", `{"params":{"name":"cheap"}}`, ""},
		{pointer, "params.name=dear", `{"params":{"name":"cheap"}}`, ""},
		{pointer, "params[name]=dear", `{"params":{"name":"cheap"}}`, ""},
		{pointer, "a=b;params%5Bname%5D=dear", `{"params":{"name":"cheap"}}`, ""},
		{pointer, "", `{"params":{"name":"cheap","x":"&params.name=dear&"}}`, ""},
		{pointer, "", `{"params":{"name":"cheap","x":"&params%5Bname]=dear&"}}`, ""},
		{pointer, "", `[{"params":{"name":"cheap"}},{"params":{"name":"dear"}}]`, ""}, // a batch
		{pointer, "", `{"params":[{"name":"cheap"}]}`, ""},
		{"/params/0", "", `{"params":["cheap"]}`, ""},
		{pointer, "", `{"params":"name"}`, ""},
		{pointer, "", `{"params":null}`, ""},
		{pointer, "", `{"params":{}}`, ""},
		{pointer, "", `{"params":{"name":{"name":"cheap"}}}`, ""},
		{pointer, "", `{"params":{"name":["cheap"]}}`, ""},
		{pointer, "", `{"params":{"name":1.0}}`, ""},
		{pointer, "", `{"params":{"name":" "}}`, ""},
		{pointer, "", `{"/params/name":"cheap"}`, ""},
		{pointer, "", `{"params.name":"cheap"}`, ""},
		{pointer, "", `{"params":{"name":"cheap"}}{"params":{"name":"dear"}}`, ""},
	} {
		s := sent{"POST", jsonType, tc.query, tc.body}
		got, err := keyfunc.BodyJSON(tc.pointer, 1<<10).Resolve(s.request())
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s of %+q: got %q, %v; want %q", tc.pointer, s, got, err, tc.want)
		}
		for name, read := range nestedReaders {
			if tool := read(s.request()); err == nil && tc.pointer == pointer && tool != "" && !strings.EqualFold(tool, got) {
				t.Errorf("%+q: key %q; by %s the handler reads %q", s, got, name, tool)
			}
		}
	}
}

func FuzzBody(f *testing.F) {
	for _, s := range []sent{
		{"POST", jsonType, "", `{"email":"alice","a":[1,{"email":2}]}`},
		{"POST", jsonType, "", `{"email":"a","EMAIL":"b","x":"&email=c"}`},
		{"PUT", formType, "a=b", "email=alice&a=%20"},
		{"PATCH", formType, "email=b", `{"email":"alice","x":"&email=r1&"}`},
		{"DELETE", formType + "; charset=utf-8", "a=b;email=c", "\ufeff{\"email\":\"x\"}&email=y"},
		{"POST", jsonType, "params.name=x", `{"params":{"name":"a","n\u0061me":"b"},"PARAMS":{"name":["\""]}}`},
		{"POST", "application/a+json", "", `{"e_mail":"\u017f\ud83d\ude00","\u0065mail":"\\\""}`},
	} {
		f.Add(s.method, s.contentType, s.query, s.body)
	}
	f.Fuzz(func(t *testing.T, method, contentType, query, body string) {
		s := sent{method, contentType, query, body}
		wantNoOtherAccount(t, s)
		r := s.request()
		_, _ = keyfunc.BodyJSON("email", 64).Resolve(r)
		_, _ = keyfunc.BodyForm("email", 80).Resolve(r)
		if tool, err := keyfunc.BodyJSON("/params/name", 1<<10).Resolve(r); err == nil {
			for name, read := range nestedReaders {
				if other := strings.TrimSpace(read(s.request())); other != "" && !strings.EqualFold(other, tool) {
					t.Errorf("%+q: key %q; by %s the handler reads %q", s, tool, name, other)
				}
			}
		}
		if got, err := io.ReadAll(r.Body); string(got) != body || err != nil {
			t.Errorf("the handler reads %q, %v", got, err)
		}
	})
}
