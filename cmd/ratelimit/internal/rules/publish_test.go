package rules

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/cli"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

// A shelf has a Redis and a rule file.
type shelf struct {
	t      *testing.T
	server *miniredis.Miniredis
	fleet  rulefile.Fleet
	path   string
}

func newShelf(t *testing.T) *shelf {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	t.Setenv("REDIS_URL", "redis://"+server.Addr())
	return &shelf{t, server, rulefile.Fleet{Client: client, Namespace: "shop"}, filepath.Join(t.TempDir(), "rules.yaml")}
}

// rate is a rule document.
func rate(n int) string {
	return fmt.Sprintf("version: 1\n# one\n# two\n# three\n# four\nrules:\n  - name: login\n    key: ip\n    limit: %d/1m fixed_window\n", n)
}

func (s *shelf) write(text string) {
	s.t.Helper()
	if err := os.WriteFile(s.path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// run runs a command, whose output must have the wanted parts.
func (s *shelf) run(stdin io.Reader, status int, args []string, want ...string) string {
	s.t.Helper()
	var out strings.Builder
	args = append([]string{args[0], "-namespace", "shop"}, args[1:]...)
	if got := execute(cli.Streams{In: stdin, Out: &out, Err: &out}, args); got != status {
		s.t.Errorf("%q: status %d, want %d", args, got, status)
	}
	for _, part := range want {
		if !strings.Contains(out.String(), part) {
			s.t.Errorf("%q:\n%s\nwant %s", args, &out, part)
		}
	}
	return out.String()
}

// force checks the version in force.
func (s *shelf) force(version int64) rulefile.Document {
	s.t.Helper()
	d, err := s.fleet.Document(s.t.Context())
	if d.Version != version || version > 0 && err != nil {
		s.t.Errorf("version %d is in force, want %d; %v", d.Version, version, err)
	}
	return d
}

func no() io.Reader  { return strings.NewReader("") }
func yes() io.Reader { return strings.NewReader("y\n") }

func TestPublish(t *testing.T) {
	s := newShelf(t)
	s.run(no(), 0, []string{"history"}, "nothing is published", "VERSION")
	s.write(rate(5))
	s.run(no(), 1, []string{"publish", s.path}, "--- nothing published\n+++ "+s.path+"\n+version: 1\n", "publish this for shop? [y/N]", "nothing was published: answer y, or write -yes")
	s.run(strings.NewReader("n\n"), 1, []string{"publish", s.path}, "nothing was published")
	s.force(0)
	s.run(yes(), 0, []string{"publish", "-by", "alice", "-note", "first: rules", s.path}, "published: version 1;")
	if d := s.force(1); string(d.Text) != rate(5) || d.By != "alice" || d.Note != "first: rules" {
		t.Errorf("%+v", d)
	}
	s.run(no(), 0, []string{"publish", s.path}, "in force already: version 1, ", "alice: first: rules")
	s.run(no(), 0, []string{"diff", s.path}, "in force already: version 1, ")

	s.write(rate(6))
	if out := s.run(no(), 1, []string{"diff", s.path}, "alice: first: rules\n+++ "+s.path+"\n rules:\n   - name: login\n     key: ip\n-    limit: 5/1m fixed_window\n+    limit: 6/1m fixed_window\n"); strings.Contains(out, "one") {
		t.Error(out)
	}
	s.force(1)
	s.run(no(), 0, []string{"publish", "-yes", s.path}, "published: version 2;")
	s.run(strings.NewReader(rate(7)), 0, []string{"publish", "-yes", "-"}, "published: version 3;")
	s.run(strings.NewReader(rate(8)), 2, []string{"publish", "-"}, "give -yes")

	// Back again.
	s.run(no(), 1, []string{"diff", "-version", "1"}, "+++ version 1\n", "-    limit: 7/1m", "+    limit: 5/1m")
	s.run(yes(), 0, []string{"publish", "-version", "1"}, "published: version 4;")
	if d := s.force(4); string(d.Text) != rate(5) || d.By == "" || d.Note != "version 1 again" {
		t.Errorf("%+v", d)
	}
	s.run(no(), 0, []string{"publish", "-version", "4"}, "in force already: version 4, ")
	s.run(no(), 1, []string{"publish", "-version", "9"}, "version 9 is not kept: ratelimit history lists those that are")
	out := s.run(no(), 0, []string{"history"})
	for i, want := range []string{"VERSION  PUBLISHED", "4 ", "3 ", "2 ", "1 ", ""} {
		if lines := strings.Split(out, "\n"); len(lines) != 6 || !strings.HasPrefix(lines[i], want) {
			t.Errorf("%d lines\n%s", len(lines), out)
		}
	}
}

// A publisher who is asked while another one publishes replaces nothing.
func TestTwoPublishers(t *testing.T) {
	s := newShelf(t)
	s.write(rate(5))
	s.run(no(), 0, []string{"publish", "-yes", s.path})
	s.write(rate(6))
	s.run(onRead(func() {
		if _, err := s.fleet.Publish(t.Context(), rulefile.Document{Text: []byte(rate(9))}, 1); err != nil {
			t.Error(err)
		}
	}), 1, []string{"publish", s.path}, "nothing was published: another publisher was first; look at ratelimit diff")
	if d := s.force(2); string(d.Text) != rate(9) {
		t.Errorf("%q", d.Text)
	}
}

// A file that was made from an older version replaces nothing, if its publisher says which.
func TestPublishReplaces(t *testing.T) {
	s := newShelf(t)
	s.write(rate(5))
	s.run(no(), 1, []string{"publish", "-yes", "-replaces", "1", s.path}, "nothing was published: the file was made from version 1, and in force is nothing published;")
	s.run(no(), 0, []string{"publish", "-yes", "-replaces", "0", s.path}, "published: version 1")
	s.write(rate(6))
	s.run(no(), 0, []string{"publish", "-yes", "-replaces", "1", s.path}, "published: version 2")
	s.write(rate(7))
	s.run(no(), 1, []string{"publish", "-yes", "-replaces", "1", s.path}, "nothing was published: the file was made from version 1, and in force is version 2, ", "+    limit: 7/1m")
	s.force(2)
}

// onRead says yes after it has done something.
type onRead func()

func (f onRead) Read(p []byte) (int, error) { f(); return copy(p, "y\n"), io.EOF }

func TestNothingIsPublished(t *testing.T) {
	s := newShelf(t)
	s.write(rate(5))
	s.run(no(), 0, []string{"publish", "-yes", s.path})
	publish := []string{"publish", "-yes", s.path}

	s.write("version: 1\nrules: [{name: r, key: ip, limit: 6}]\n")
	if out := s.run(no(), 1, publish, ":2:35: rules[0].limit: "); strings.Contains(out, "+++") {
		t.Error(out)
	}
	s.write("version: 2\npolicies: []\n")
	s.run(no(), 1, publish, "this program reads version 1")
	s.write(rate(6))
	s.run(no(), 1, []string{"publish", "-yes", "-keys", "user", "-note", "a\nb", s.path}, "plain text on one line")
	s.run(no(), 1, []string{"publish", "-yes", filepath.Dir(s.path)}, "is no regular file")
	if out := s.run(no(), 2, []string{"diff", "-redis", "redis://:secret@[::1", s.path}, "no URL of a Redis"); strings.Contains(out, "secret") {
		t.Error(out)
	}
	s.force(1)

	s.server.SetError("READONLY You can't write against a read only replica.")
	s.run(no(), 1, publish, "READONLY")
	s.run(no(), 1, []string{"history"}, "READONLY")
	s.run(no(), 2, []string{"diff", s.path}, "READONLY")
	s.server.SetError("")
	s.force(1)
	// A tool that is older than the document replaces it only if it is told so.
	if _, err := s.fleet.Publish(t.Context(), rulefile.Document{Text: []byte("version: 2\npolicies: []\n")}, 1); err != nil {
		t.Fatal(err)
	}
	s.run(no(), 1, []string{"publish", s.path}, "-version: 2\n-policies: []\n+version: 1\n", "nothing was published")
	s.run(no(), 1, []string{"publish", "-version", "3"}, "version 3 is not kept")
	s.run(no(), 1, []string{"publish", "-version", "2"}, "this program reads version 1")

	// What was changed by hand can be replaced.
	if err := s.server.Set("shop:rules", must(s.server.Get("shop:rules"))+"# by hand\n"); err != nil {
		t.Fatal(err)
	}
	s.run(yes(), 0, []string{"publish", s.path}, "version 2 is not as it was published", "--- version 2, changed by hand\n", "published: version 3;")
	if err := s.server.Set("shop:rules", rate(9)); err != nil {
		t.Fatal(err)
	}
	const foreign = "shop:rules was not written by Fleet.Publish: publish the rules"
	s.run(no(), 0, []string{"history"}, foreign, "\n1  ")
	s.run(no(), 1, []string{"diff", s.path}, foreign, "--- a value that publish has not written\n+++ "+s.path+"\n+version: 1\n")
	s.run(no(), 1, []string{"diff", "-version", "1"}, foreign, "+++ version 1\n")
	s.run(no(), 1, []string{"publish", s.path}, foreign, "nothing was published")
	s.run(yes(), 0, []string{"publish", s.path}, foreign, "publish this for shop? [y/N]", "published: version 4;")
	s.run(yes(), 0, []string{"publish", "-version", "1"}, "as version 5? [y/N]", "published: version 5;")
	s.server.Del("shop:rules")
	s.run(no(), 0, []string{"history"}, "nothing is published", "\n4  ", "\n1  ")
	s.run(yes(), 0, []string{"publish", s.path}, "--- nothing published\n", "published: version 6;")
}

func must(text string, err error) string {
	if err != nil {
		panic(err)
	}
	return text
}

func TestDifference(t *testing.T) {
	long := strings.Repeat("a\nb\n", 3000)
	for _, c := range []struct{ was, now, want string }{
		{"", "", ""},
		{"a\n", "", "-a\n"},
		{"a", "a", ""},
		{"", "a\n", "+a\n"},
		{"a\nb\nc", "a\nx\nc", " a\n-b\n+x\n c\n"},
		{"1\n2\n3\n4\n5\n6\n7\n8\n9", "1\n3\n4\n5\n6\n7\n8\n8\n9", " 1\n-2\n 3\n 4\n 5\n 6\n 7\n 8\n+8\n 9\n"},
		{"a\x1b[2K", "a\u202eb", "-a\ufffd[2K\n+a\ufffdb\n"},
		{"x\n" + long + "y", "z\n" + long + "w", "-x\n+z\n a\n b\n a\n…\n b\n a\n b\n-y\n+w\n"},
	} {
		got := difference(c.was, c.now)
		if c.want != got && len(c.was) < 1000 {
			t.Errorf("%q, %q: %q, want %q", c.was, c.now, got, c.want)
		}
		if len(c.was) > 1000 && (!strings.HasPrefix(got, "-x\n") || !strings.HasSuffix(got, "+w\n")) {
			t.Errorf("%.100q", got)
		}
	}
}

var errBroken = errors.New("broken")

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errBroken }

func TestStandardInputThatFails(t *testing.T) {
	s := newShelf(t)
	s.run(broken{}, 1, []string{"publish", "-yes", "-"}, "broken")
	s.force(0)
}
