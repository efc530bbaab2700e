package rulefile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/hint"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

// Keys count whom their names say, and pass on what keys can.
func TestKeys(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/a", nil)
	r.RemoteAddr = "[2001:db8::1]:4711"
	r.Header.Set("X-Device", "phone")
	r.Header.Set("Authorization", "Bearer secret")
	l := loader()
	l.Keys["body"] = keyfunc.BodyJSON("email", 100)
	l.Keys["tool"] = keyfunc.OneOf(keyfunc.BodyJSON("name", 100), "query")
	l.Keys["two"] = keyfunc.Join(keyfunc.IP, keyfunc.Header("X-Device"))
	l.Keys["own"] = keyfunc.Func(func(*http.Request) (string, error) { return "mine", nil })
	l.Keys["broken"] = keyfunc.Hashed(keyfunc.IP, []byte("short"))
	var asked []string // for names that Keys does not have
	l.KeyFor = func(name string) keyfunc.Key {
		if asked = append(asked, name); name != "made" {
			return nil
		}
		return keyfunc.Header("X-Device")
	}
	two := []byte("{version: 1, rules: [{name: r, key: made, limit: 5/1m}, {name: s, key: [ip, made], limit: 5/1m}]}")
	if _, err := l.Parse("f", two); err != nil || !slices.Equal(asked, []string{"made"}) {
		t.Errorf("%v, asked for %q", err, asked)
	}
	if _, err := l.Parse("f", bytes.ReplaceAll(two, []byte("made"), []byte("maid"))); err == nil || !strings.Contains(err.Error(), `no such key: "maid"`) {
		t.Error(err)
	}
	for text, c := range map[string]struct{ name, key, plain string }{
		"ip":                      {"ip", "2001:db8::/64", "2001:db8::1"},
		"[ip]":                    {"ip", "2001:db8::/64", "2001:db8::1"},
		"everyone":                {"everyone", "everyone", ""},
		"user":                    {"user", "alice", "alice"},
		"made":                    {"made", "phone", "phone"},
		"own":                     {"own", "mine", "mine"},
		"header:x-device":         {"header:X-Device", "phone", "phone"},
		"apikey:Authorization":    {"apikey:Authorization", "apikey:K7gNU3sdo-OL0wNhqoVWhg", "secret"},
		"[user, header:X-Device]": {"[user, header:X-Device]", "5:alice,5:phone", "alice phone"},
		"[two, user]":             {"[two, user]", "24:13:2001:db8::/64,5:phone,5:alice", "2001:db8::1 phone alice"},
	} {
		rules, err := l.Parse("f", fmt.Appendf(nil, "{version: 1, rules: [{name: r, key: %s, limit: 5/1m}]}", text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		key := rules[0].Key.(keyfunc.Described)
		if got := key.String(); got != c.name {
			t.Errorf("%s is printed as %s", text, got)
		}
		if got, err := key.Resolve(r); err != nil || got != c.key {
			t.Errorf("%s: %q, %v; want %q", text, got, err, c.key)
		}
		got, err := key.Keys(strings.Fields(c.plain)...)
		if err != nil || !slices.Equal(got, []string{c.key}) {
			t.Errorf("%s: plain value %q is %q, %v; want %q", text, c.plain, got, err, c.key)
		}
		if key.ReadsBody() || key.Validate() != nil {
			t.Errorf("%s reads bodies, or is not valid", text)
		}
	}
	for _, text := range []string{"body", "[ip, tool]"} {
		rules, err := l.Parse("f", fmt.Appendf(nil, "{version: 1, rules: [{name: r, key: %s, limit: 5/1m}]}", text))
		if err != nil || !rules[0].Key.(keyfunc.Described).ReadsBody() {
			t.Errorf("%s: %v, or it is not known that it reads bodies", text, err)
		}
	}
	if _, err := l.Parse("f", []byte("{version: 1, rules: [{name: r, key: [ip, body], limit: 5/1m}]}")); err == nil || !strings.Contains(err.Error(), "f:1:37: rules[0].key: keyfunc: Join: made-up values of bodyjson:email") {
		t.Error(err)
	}
	same, err := l.Parse("f", []byte("{version: 1, rules: [{name: a, key: 'header:X-A', limit: 5/1m}, {name: b, key: [ 'header:x-a' ], limit: 5/1m}, {name: c, key: 'header:X-B', limit: 5/1m}]}"))
	if err != nil || same[0].Key != same[1].Key || same[0].Key == same[2].Key {
		t.Errorf("rules with the same key have not the same Key: %v, %v", same, err)
	}
	_, err = l.Parse("f", []byte("{version: 1, rules: [{name: r, key: broken, limit: 5/1m}]}"))
	if err == nil || !strings.Contains(err.Error(), "f:1:37: rules[0].key: keyfunc: Hashed: the secret has 5 bytes") {
		t.Error(err)
	}
	l.Keys = map[string]keyfunc.Key{"ip": keyfunc.Header("X-Device")} // in place of the built-in one
	rules, err := l.Parse("f", []byte("{version: 1, rules: [{name: r, key: ip, limit: 5/1m}]}"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := rules[0].Key.Resolve(r); err != nil || got != "phone" {
		t.Error(got, err)
	}
}

// Hints about a key of the program need to know what it is made of.
func TestKeysPassOnTraits(t *testing.T) {
	l := &rulefile.Loader{Keys: map[string]keyfunc.Key{"account": keyfunc.BodyJSON("email", 8<<10), "route": keyfunc.Mux(http.NewServeMux())}}
	for text, want := range map[string]hint.Traits{"account": {Chosen: "a field of the body"}, "[account, route]": {Chosen: "a field of the body", Route: true}} {
		rules, err := l.Parse("f", fmt.Appendf(nil, "{version: 1, rules: [{name: r, key: %s, limit: 5/1m}]}", text))
		if err != nil {
			t.Fatal(err)
		}
		if got := hint.Of(rules[0].Key); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

func TestMistakesOfTheProgram(t *testing.T) {
	good := []byte("{version: 1, rules: [{name: r, key: ip, limit: 5/1m}]}")
	boo := errors.New("boo")
	for want, l := range map[string]*rulefile.Loader{
		`rulefile: Loader.Keys["a b"]: a name has letters`:                          {Keys: map[string]keyfunc.Key{"a b": keyfunc.IP}},
		`rulefile: Loader.Keys["header:X"]: a name has letters`:                     {Keys: map[string]keyfunc.Key{"header:X": keyfunc.IP}},
		`rulefile: Loader.Keys[""]: a name has letters`:                             {Keys: map[string]keyfunc.Key{"": keyfunc.IP}},
		`rulefile: Loader.Keys["user"]: the Key is nil`:                             {Keys: map[string]keyfunc.Key{"user": nil}},
		`rulefile: Loader.Keys["f"]: the Key is nil`:                                {Keys: map[string]keyfunc.Key{"f": keyfunc.Func(nil)}},
		`rulefile: "f\n": Loader.Edit: boo`:                                         {Edit: func([]ratelimit.Rule) ([]ratelimit.Rule, error) { return nil, boo }},
		`rulefile: "f\n": Loader.Edit: middleware: rules: at least one`:             {Edit: func([]ratelimit.Rule) ([]ratelimit.Rule, error) { return nil, nil }},
		`rulefile: "f\n": Loader.Edit: middleware: rule "r": name: rules[0] and ru`: {Edit: func(r []ratelimit.Rule) ([]ratelimit.Rule, error) { return append(r, r[0]), nil }},
	} {
		if rules, err := l.Parse("f\n", good); err == nil || rules != nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, %v; want %s", rules, err, want)
		}
	}
	if _, err := new(rulefile.Loader).Load(t.Context()); err == nil || !strings.Contains(err.Error(), "Loader.Source: required") {
		t.Error(err)
	}
	called := false
	l := &rulefile.Loader{Edit: func(r []ratelimit.Rule) ([]ratelimit.Rule, error) { called = true; return r, nil }}
	if _, err := l.Parse("f", nil); err == nil || called {
		t.Errorf("%v, and Edit was called: %v", err, called)
	}
}

func TestEdit(t *testing.T) {
	l := &rulefile.Loader{Edit: func(rules []ratelimit.Rule) ([]ratelimit.Rule, error) {
		rules[0].CostFor = func(*http.Request) int64 { return 3 }
		return append(rules, ratelimit.Rule{Name: "all", Key: keyfunc.Everyone, Limit: algorithms.PerSecond(5000)}), nil
	}}
	rules, err := l.Parse("f", []byte("{version: 1, rules: [{name: r, key: ip, limit: 5/1m}]}"))
	if err != nil || len(rules) != 2 || rules[0].CostFor == nil || rules[1].Name != "all" {
		t.Errorf("%+v, %v", rules, err)
	}
}

func TestErrorsHavePlaces(t *testing.T) {
	_, err := loader().Parse("rules.yaml", []byte("version: 1\nrules:\n  - name: a\n    key: ip\n    limit: 100\n"))
	mistake, ok := errors.AsType[*rulefile.Error](err)
	if !ok || mistake.Name != "rules.yaml" || mistake.Line != 5 || mistake.Column != 12 || mistake.Path != "rules[0].limit" {
		t.Errorf("%#v", mistake)
	}
	_, err = loader().Parse("rules.yaml", []byte("version: 1\nrules:\n  - name: a\n    key: ip\n    limit: 5/1m\n    cost: 6\n"))
	if rule, ok := errors.AsType[*ratelimit.RuleError](err); ok {
		t.Errorf("a RuleError, whose text says again where: %v", rule)
	}
	if err == nil || err.Error() != "rules.yaml:6:11: rules[0].cost: 6 is above the 5 units that the limit 5/1m can hold: no request would pass" {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"{version: 1, rules: [\n{name: a, key: ip, limit: 5/1m, tiers: {pro: 1/1m, Pro: unlimited}}]}":              `f:2:41: rules[0].tiers.pro: differs from "Pro" only in case`,
		"{version: 1, rules: [\n{name: a, key: ip, limit: 5/1m, tiers: {'pro ': unlimited}}]}":                      `f:2:41: rules[0].tiers["pro "]: there is white space around it; write "pro"`,
		"version: 1\nrules:\n" + numbered(1001, "- {name: r%d, key: ip, limit: 5/1m}\n"):                            `f:1003:3: rules[1000]: 1001 rules; at most 1000`,
		"{version: 1, rules: [{name: a, key: ip, limit: 5/1m, match: [\n" + numbered(1001, "/%d, ") + "/]}]}":       `f:1:61: rules[0].match: 1002 patterns; at most 1000`,
		"{version: 1, rules: [{name: a, limit: 5/1m, key: [\n" + strings.Repeat("ip,\n", 16) + "everyone, user]}]}": `f:18:1: rules[0].key: a key of 18; at most 16`,
	} {
		if _, err := anyTier().Parse("f", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v; want %s", err, want)
		}
	}
	// A name cannot forge a line of a log.
	err = &rulefile.Error{Name: "a\nb", Line: 1, Column: 2, Err: errors.New("boo")}
	if err.Error() != `"a\nb":1:2: boo` {
		t.Error(err)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rules.yaml")
	l := loader()
	l.Source = rulefile.File(path)
	if _, err := l.Load(t.Context()); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
	write(t, path, "version: 1\nrules:\n  - {name: r, key: ip, limit: 100}\n")
	if _, err := l.Load(t.Context()); err == nil || !strings.HasPrefix(err.Error(), path+":3:31: rules[0].limit: ") {
		t.Error(err)
	}
	write(t, path, "version: 1\nrules:\n  - {name: r, key: ip, limit: 100/1m}\n")
	if rules, err := l.Load(t.Context()); err != nil || len(rules) != 1 {
		t.Error(rules, err)
	}
	write(t, path, "version: 1\nrules:\n  - {name: r, key: ip, limit: 100/1m}\n#"+strings.Repeat("x", 1<<20))
	if _, err := l.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "larger than 1048576 bytes") {
		t.Error(err)
	}
	pipe := filepath.Join(dir, "pipe") // to open one waits for its writer
	if err := exec.Command("mkfifo", pipe).Run(); err != nil {
		pipe = dir
	}
	for _, other := range []string{dir, os.DevNull, pipe} {
		l.Source = rulefile.File(other)
		if _, err := l.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "no regular file") {
			t.Errorf("%s: %v", other, err)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A source of the program's own is named by its String, or by its type.
func TestOwnSource(t *testing.T) {
	for want, source := range map[string]rulefile.Source{"consul:1:1: ": consul{}, "rulefile_test.unnamed:1:1: ": unnamed{}} {
		if _, err := (&rulefile.Loader{Source: source}).Load(context.Background()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}

type unnamed struct{}

func (unnamed) Read(context.Context) ([]byte, error) { return nil, nil }

type consul struct{ unnamed }

func (consul) String() string { return "consul" }

// A source that cannot be read is named, once.
func TestASourceThatFailsIsNamed(t *testing.T) {
	for source, want := range map[rulefile.Source]string{
		failing("table plans"):              "rulefile: table plans: db is down",
		rulefile.File("no/such/rules.yaml"): "rulefile: open no/such/rules.yaml: no such file or directory",
	} {
		if _, err := (&rulefile.Loader{Source: source}).Load(t.Context()); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

type failing string

func (failing) Read(context.Context) ([]byte, error) { return nil, errors.New("db is down") }
func (f failing) String() string                     { return string(f) }
