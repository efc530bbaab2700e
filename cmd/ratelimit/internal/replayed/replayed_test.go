package replayed_test

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/replayed"
)

// example is the document in the package's comment.
func example(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile("replayed.go")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(source)) {
		if text, ok := strings.CutPrefix(line, "//\t"); ok {
			b.WriteString(text)
		} else if strings.HasPrefix(line, "package ") {
			break
		}
	}
	return b.String()
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	want, err := replayed.Read(strings.NewReader(example(t)))
	if err != nil {
		t.Fatal(err)
	}
	if want.Requests != 1200 || want.Rules[0].Under != 0.01 || want.Minutes[0].ByRule["login"] != 6 || want.Rules[2].NotReplayed == "" || want.Clients[0].Key != "203.0.113.9" {
		t.Errorf("%+v", want)
	}
	var b bytes.Buffer
	if err := replayed.Write(&b, want); err != nil {
		t.Fatal(err)
	}
	if got, err := replayed.Read(&b); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n%+v\n%+v", err, got, want)
	}
}

func TestMistakesAreRefused(t *testing.T) {
	good := example(t)
	for old, c := range map[string]struct{ new, want string }{
		`"version": 1`:                    {`"version": 2`, "version 2"},
		`"denied": 25, "bad"`:             {`"denied": 1201, "bad"`, "1201 denied of 1200"},
		`"bad": 3`:                        {`"bad": -1`, "-1 bad lines"},
		`"name": "login"`:                 {`"name": "per-ip"`, `rule "per-ip" has no name, or another one's`},
		`"limit": "200/1m"`:               {`"limit": "200"`, `rule "per-ip": limit "200": no period`},
		`"limit": "60/1m", "requests": 0`: {`"limit": "60/1m", "requests": 1`, "not replayed, and 1 requests"},
		`"limited": 2`:                    {`"limited": 86`, "86 limited of 85"},
		`09:01:00Z`:                       {`09:00:30Z`, "no whole minute"},
		`"2026-11-20T09:01:00Z"`:          {`"2026-11-20T09:00:00Z"`, "not after the one before"},
		`"requests": 500`:                 {`"requests": 500, "denied": 501`, "501 denied of 500"},
		`"2026-11-20T09:00:00Z"`:          {`"0226-11-20T09:00:00Z"`, "not of this age"},
		`"by_rule": {"per-ip": 20`:        {`"by_rule": {"other": 20`, `no rule is called "other"`},
		`"login": 6}`:                     {`"login": 701}`, "701 denied of 700"},
		`{"rule": "per-ip", "key"`:        {`{"rule": "", "key"`, `no rule is called ""`},
		`"requests": 350`:                 {`"requests": -350`, "20 denied of -350"},
		`"log": "access.log"`:             {`"log": 7`, "cannot unmarshal number"},
		`"203.0.113.9", "requests": `:     {`"203.0.113.9", "requests": 1e400`, "replayed: "},
	} {
		text := strings.Replace(good, old, c.new, 1)
		if text == good {
			t.Errorf("the example has no %s", old)
		}
		if _, err := replayed.Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.new, err, c.want)
		}
	}
	for _, text := range []string{"", "[]", good + good, strings.Repeat(" ", 64<<20) + good} {
		if _, err := replayed.Read(strings.NewReader(text)); err == nil {
			t.Errorf("%d bytes are taken for a result", len(text))
		}
	}
	var b bytes.Buffer
	if err := replayed.Write(&b, replayed.Result{Requests: -1}); err == nil || b.Len() > 0 {
		t.Errorf("%v, and wrote %q", err, &b)
	}
}
