package monitoring_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// A server is a Prometheus that looks at an example every second.
type server struct {
	url      string
	deadline time.Time
}

// shortened is the alerts' file for a test that cannot wait: what looks back over
// minutes looks back over window, and nothing has to last for longer than a second.
func shortened(t *testing.T, window string) string {
	t.Helper()
	alerts := read(t, "alerts.yml")
	alerts = regexp.MustCompile(`\[\d+m\]`).ReplaceAllString(alerts, "["+window+"]")
	return regexp.MustCompile(`for: \d+m`).ReplaceAllString(alerts, "for: 1s")
}

// startPrometheus starts a server with our files, on a port of 127.0.0.1. The
// test's cleanup ends it. What is waited for has to come within a time for all.
func startPrometheus(t *testing.T, target, window string, within time.Duration) *server {
	t.Helper()
	program := tool(t, "prometheus")
	config := strings.NewReplacer("5s", "1s", "127.0.0.1:8081", target).Replace(read(t, "prometheus.yml"))
	dir := t.TempDir()
	for name, text := range map[string]string{"prometheus.yml": config, "alerts.yml": shortened(t, window)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	free.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	run(t, exec.CommandContext(ctx, program, "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr, "--log.level=warn"))
	s := &server{"http://" + addr, time.Now().Add(within)}
	s.until(t, "Prometheus scrapes the example", func() error {
		if up := s.query(t, `up{job="example"} == 1`); len(up) != 1 {
			return fmt.Errorf("up: %v", up)
		}
		return nil
	})
	return s
}

// until polls until try returns nil.
func (s *server) until(t *testing.T, what string, try func() error) {
	t.Helper()
	begin := time.Now()
	for range time.Tick(100 * time.Millisecond) {
		err := try()
		if err == nil {
			t.Logf("%s: after %.1f s", what, time.Since(begin).Seconds())
			return
		}
		if time.Now().After(s.deadline) {
			t.Fatalf("%s: not in the time for the whole test, and for %.1f s: %v", what, time.Since(begin).Seconds(), err)
		}
	}
}

// get decodes the data of an answer of the HTTP API. An error means that the
// server is not there yet.
func (s *server) get(t *testing.T, path string, data any) error {
	t.Helper()
	resp, err := web.Get(s.url + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusServiceUnavailable {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Status != "success" {
		t.Fatalf("%s: %s, %v, %s", path, resp.Status, err, answer.Error)
	}
	return nil
}

// A sample is one series of an instant vector.
type sample struct {
	Metric map[string]string
	Value  [2]any
}

func (s *server) query(t *testing.T, expr string) []sample {
	t.Helper()
	var data struct{ Result []sample }
	if s.get(t, "/api/v1/query?query="+url.QueryEscape(expr), &data) != nil {
		return nil
	}
	return data.Result
}

// firing returns the alerts that fire, such as "RatelimitFailOpen per-ip".
func (s *server) firing(t *testing.T) (names []string) {
	t.Helper()
	var data struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}
	if err := s.get(t, "/api/v1/alerts", &data); err != nil {
		t.Fatal(err)
	}
	for _, a := range data.Alerts {
		if a.State == "firing" {
			names = append(names, strings.TrimSpace(a.Labels["alertname"]+" "+a.Labels["rule"]+a.Labels["class"]))
		}
	}
	slices.Sort(names)
	return names
}

// wantFiring waits until the alerts fire, whatever else does.
func (s *server) wantFiring(t *testing.T, when string, alerts ...string) {
	t.Helper()
	s.until(t, when+", so these fire: "+strings.Join(alerts, ", "), func() error {
		got := s.firing(t)
		for _, name := range alerts {
			if !slices.Contains(got, name) {
				return fmt.Errorf("%s does not fire; %q do", name, got)
			}
		}
		return nil
	})
}

// wantResolved waits until the alerts do not fire. Others may: on a busy machine
// Redis is slow now and then.
func (s *server) wantResolved(t *testing.T, when string, alerts ...string) {
	t.Helper()
	s.until(t, when+", so these do not: "+strings.Join(alerts, ", "), func() error {
		got := s.firing(t)
		for _, name := range alerts {
			if slices.Contains(got, name) {
				return fmt.Errorf("%q fire", got)
			}
		}
		return nil
	})
}
