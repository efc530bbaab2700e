package examples_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed75154129/ratelimit/internal/redistest"
)

const reports = "POST /api/reports"

// operate sends an operator's request, a POST if there is a form, and reads the
// answer into v.
func (s *service) operate(v any, query string, form url.Values) error {
	method, body := http.MethodGet, io.Reader(nil)
	if form != nil {
		method, body = http.MethodPost, strings.NewReader(form.Encode())
	}
	r, err := http.NewRequest(method, s.admin+"/ratelimit/"+query, body)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := web.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d, %s, %w", resp.StatusCode, text, err)
	}
	return json.Unmarshal(text, v)
}

// state is what operators see of the rules.
type state struct {
	Generation int
	RulesError string `json:"rules_error"`
	Rules      []struct{ Name, Limit string }
	TopDenied  []struct {
		Rule, ID string
		Count    int
	} `json:"top_denied"`
}

// Each file of testdata/rules does what it says.
func TestRuleFiles(t *testing.T) {
	files, err := filepath.Glob("../testdata/rules/*.yaml")
	if err != nil || len(files) != 5 {
		t.Fatal(files, err)
	}
	shows := map[string]func(t *testing.T, s *service){
		"service": func(t *testing.T, s *service) {
			inOneMinute(t, func(c client) error {
				return errors.Join(
					s.expect(c, items, "200 199/200"),
					s.expect(c.as("user of "+c.ip), items, "200 99/100"),
					s.expect(c, login, "200 4/5", "200 3/5", "200 2/5", "200 1/5", "200 0/5", "429 0/5"),
				)
			})
		},
		"tiers": func(t *testing.T, s *service) {
			inOneMinute(t, func(c client) error {
				return errors.Join(
					s.expect(c, items, "200 199/200"), // no user, no plan
					s.expect(c.as("free of "+c.ip), items, "200 19/20"),
					s.expect(c.as("odd of "+c.ip).on("platinum"), items, "200 19/20"),
					s.expect(c.as("staff of "+c.ip).on("internal"), items, "200 196/200"),
					// Of a thousand a minute it has more left than its address.
					s.expect(c.as("pro of "+c.ip).on("pro"), items, "200 195/200"),
				)
			})
		},
		"login": func(t *testing.T, s *service) {
			inOneMinute(t, func(c client) error {
				good, bad := c.with("secret"), c.with("wrong") // the limit has room for half of what bans
				for range 20 {
					if err := s.expect(good, login, "200 4/5"); err != nil {
						return err
					}
				}
				var stands struct{ Counts []struct{ Banned bool } }
				if err := errors.Join(
					s.expect(bad, login, "401 4/5", "401 3/5", "401 2/5", "401 1/5", "401 0/5", "429 0/5"),
					s.expect(good, login, slices.Repeat([]string{"429 0/5"}, 8)...), // who guesses may have guessed right
				); err != nil {
					return err
				}
				ban := url.Values{"action": {"ban"}, "for": {"15m"}, "rule": {"login"}, "value": {c.ip}} // or five failures later
				if err := s.operate(&stands, "", ban); err != nil {
					return err
				}
				if a, err := s.send(good, login); err == nil || !strings.Contains(err.Error(), `Retry-After "900"`) {
					return fmt.Errorf("banned: %s, %w", a, err)
				}
				if len(stands.Counts) != 1 || !stands.Counts[0].Banned {
					return fmt.Errorf("banned: %+v", stands)
				}
				return errors.Join(
					s.expect(newClient().with("secret"), login, "200 4/5"),
					s.expect(c, items, "200"),
				)
			})
		},
		"expensive": func(t *testing.T, s *service) {
			inOneMinute(t, func(c client) error {
				c.user = "user of " + c.ip
				return errors.Join(s.expect(c, items, "200 99/100"), s.expect(c, reports, "200 89/100"), s.expect(c, reports+"/", "404 79/100"))
			})
			inOneMinute(t, func(client) error { // others' have counted: nobody is told how many
				for range 12 {
					a, err := s.send(newClient().as(newClient().ip), reports)
					if err != nil || a.status == http.StatusOK {
						continue
					}
					if a.String() != "429" || strings.Contains(a.body, "all-reports") {
						return fmt.Errorf("%s: %s", a, a.body)
					}
					return nil
				}
				return errors.New("more than twelve reports a minute")
			})
		},
		"shadow": func(t *testing.T, s *service) {
			inOneMinute(t, func(c client) error {
				return s.expect(c, items, "200 199/200", "200 198/200", "200 197/200", "200 196/200", "200 195/200")
			})
			if text := s.metrics(t); !strings.Contains(text, `outcome="shadow_denied",rule="per-ip-strict",source="memory"}`) {
				t.Errorf("no denials in shadow:\n%s", text)
			}
		},
	}
	for _, program := range programs {
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".yaml")
			t.Run(program+"/"+name, func(t *testing.T) {
				shows[name](t, start(t, program, trusting, "-admin=127.0.0.1:0", "-rules="+file))
			})
		}
	}
}

func (s *service) metrics(t *testing.T) string {
	t.Helper()
	resp, err := web.Get(s.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A rule file is read again when it changes, and on SIGHUP. A bad one changes nothing.
func TestRulesAreReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("version: 1\nrules: [{name: r, key: ip, limit: "+text+"}]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("5/24h token_bucket")
	s := start(t, "stdlib", trusting, "-admin=127.0.0.1:0", "-rules="+file)
	is := func(limit string, generation int, failed bool) {
		t.Helper()
		eventually(t, func() error {
			var now state
			if err := s.operate(&now, "", nil); err != nil {
				return err
			}
			if now.Generation < generation || now.Rules[0].Limit != limit || (now.RulesError != "") != failed {
				return fmt.Errorf("%+v; want generation %d, %s, failed %v", now, generation, limit, failed)
			}
			return nil
		})
	}
	is("5/24h token_bucket", 2, false) // since it is watched
	if err := s.command.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	is("5/24h token_bucket", 3, false) // nothing but SIGHUP reads what has not changed
	expect := func(want ...string) {
		t.Helper()
		for _, want := range want {
			// Its limit is whole again much later than send expects.
			if a, _ := s.send(client{ip: "10.99.0.1"}, items); a.String() != want {
				t.Errorf("got %s, want %s", a, want)
			}
		}
	}
	expect("200 4/5", "200 3/5")
	write("3/24h token_bucket")
	is("3/24h token_bucket", 4, false)
	expect("200 0/3", "429 0/3")
	write("1000 per day")
	is("3/24h token_bucket", 4, true)
	expect("429 0/3")
	write("9/24h token_bucket")
	is("9/24h token_bucket", 5, false)
	expect("200 1/9")
	if text := s.metrics(t); !strings.Contains(text, "ratelimit_rules_errors_total 1\n") {
		t.Errorf("no failure is counted:\n%s", text)
	}
}

// Operators have a listener of their own, and clients none of what is there.
func TestOperators(t *testing.T) {
	srv := redistest.Start(t)
	s := start(t, "stdlib", trusting, "-admin=127.0.0.1:0", "-redis=redis://"+srv.Addr)
	inOneMinute(t, func(c client) error {
		if err := s.expect(c, login, "200 4/5", "200 3/5", "200 2/5", "200 1/5", "200 0/5", "429 0/5"); err != nil {
			return err
		}
		var now state
		if err := s.operate(&now, "", nil); err != nil {
			return err
		}
		if now.Generation != 1 || len(now.Rules) != 3 || len(now.TopDenied) == 0 || now.TopDenied[0].Rule != "login" {
			return fmt.Errorf("%+v", now)
		}
		var stands struct {
			Counts []struct {
				Remaining int
				Source    string
			}
		}
		reset := url.Values{"action": {"reset"}, "rule": {"login"}, "value": {c.ip}}
		if err := s.operate(&stands, "?rule=login&value="+c.ip, nil); err != nil {
			return err
		}
		if len(stands.Counts) != 1 || stands.Counts[0].Source == "fallback" {
			return fmt.Errorf("%+v: %w", stands, errUndecided)
		}
		if stands.Counts[0].Remaining != 0 {
			return fmt.Errorf("%+v", stands)
		}
		if err := s.operate(&stands, "", reset); err != nil {
			return err
		}
		return s.expect(c, login, "200 4/5")
	})
	for _, path := range []string{"/metrics", "/ratelimit/", "/ratelimit"} {
		if a, err := s.send(newClient(), "GET "+path); err != nil || a.status != http.StatusNotFound {
			t.Errorf("%s is public: %s, %v", path, a, err)
		}
	}
}
