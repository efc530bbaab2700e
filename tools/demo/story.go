package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// tell sends the requests and returns the first answer that is not as promised.
func tell(ctx context.Context, url string) error {
	s := &story{ctx: ctx, url: url, web: http.DefaultClient}
	const (
		ann, ben, office = "203.0.113.7", "203.0.113.8", "203.0.113.9"
		items, login     = "GET /api/items", "POST /auth/login"
	)
	fmt.Print(`
The service limits in three layers: per-ip 200/minute, per-user 100/minute, and
login 5/minute per address. This demo plays the proxy that it trusts, and so says
who the client is (X-Forwarded-For) and which user (X-User-ID).
`)

	s.title("1. Every answer shows what the tightest layer has left")
	s.send(items, ann, "", "200 per-ip 199/200")
	s.showHeaders()
	s.send(items, ann, "alice", "200 per-user 99/100")

	s.title("2. Five logins a minute; the sixth is denied")
	for _, want := range []string{"200 login 4/5", "200 login 3/5", "200 login 2/5", "200 login 1/5", "200 login 0/5", "429 login 0/5"} {
		s.send(login, ann, "", want)
	}
	s.showHeaders()

	s.title("3. Others are served, and so is the client elsewhere: it used 8 of 200, as the denied login charged nothing")
	s.send(items, ann, "", "200 per-ip 192/200")
	s.send(login, ben, "", "200 login 4/5")

	s.title("4. One user is through with 100 a minute; another at the same address is not")
	admitted := s.exhaust(items, office, "bob", 100)
	s.send(items, office, "carol", fmt.Sprintf("200 per-ip %d/200", 199-admitted))

	s.title("5. With headers.Transport, Bob's client waits as long as it is told, and is served")
	s.obey(items, office, "bob")

	s.title("6. Health checks are never limited")
	s.repeat("GET /healthz", ann, "", 300, "200")

	s.title("7. An invented address in front of the proxy's does not help")
	s.send(login, "198.51.100.1, "+ann, "", "429 login 0/5")
	return s.err
}

// A story stops at its first error.
type story struct {
	ctx    context.Context
	url    string
	web    *http.Client
	status string      // of the last answer
	header http.Header // of the last answer
	err    error
}

func (s *story) title(title string) {
	if s.err == nil {
		fmt.Printf("\n%s\n\n", title)
	}
}

// send sends a request, prints what became of it, and checks that.
func (s *story) send(request, client, user, want string) { s.repeat(request, client, user, 1, want) }

// repeat sends a request several times, prints the last answer and checks all.
func (s *story) repeat(request, client, user string, times int, want string) {
	for range times {
		if got := s.ask(request, client, user); s.err == nil && got != want {
			s.err = fmt.Errorf("%s from %s: got %q, want %q", request, strings.TrimSpace(client+" "+user), got, want)
		}
	}
	s.print(request, client, user, times, s.status, s.left())
}

// exhaust sends a request until it is denied, and returns how many were
// admitted: the limit, or on a slow machine a few more, because a token bucket
// refills meanwhile.
func (s *story) exhaust(request, client, user string, limit int) (admitted int) {
	most := limit + 20
	for s.err == nil && admitted <= most && s.ask(request, client, user) != "429 per-user 0/100" {
		admitted++
	}
	if s.err == nil && (admitted < limit || admitted > most) {
		s.err = fmt.Errorf("%s as %s: %d requests admitted, want %d", request, user, admitted, limit)
	}
	s.print(request, client, user, admitted, "200 OK", "")
	s.print(request, client, user, 1, s.status, s.left())
	return admitted
}

// ask sends one request and returns a summary such as "200 login 4/5".
func (s *story) ask(request, client, user string) string {
	if s.err != nil {
		return ""
	}
	method, path, _ := strings.Cut(request, " ")
	r, err := http.NewRequestWithContext(s.ctx, method, s.url+path, nil)
	if err != nil {
		s.err = err
		return ""
	}
	r.Header.Set("X-Forwarded-For", client)
	if user != "" {
		r.Header.Set("X-User-ID", user)
	}
	resp, err := s.web.Do(r)
	if err != nil {
		s.err = err
		return ""
	}
	_, err = io.Copy(io.Discard, resp.Body) // or the connection is not used again
	s.status, s.header = resp.Status, resp.Header
	if s.err = err; s.err == nil {
		s.err = s.checkRetryAfter(resp)
	}
	if err := resp.Body.Close(); s.err == nil {
		s.err = err
	}
	if s.layer() == "" {
		return strconv.Itoa(resp.StatusCode)
	}
	return fmt.Sprintf("%d %s %s/%s", resp.StatusCode, s.layer(), s.header.Get("X-RateLimit-Remaining"), s.header.Get("X-RateLimit-Limit"))
}

// layer is the rule that the headers are about. Its limit tells.
func (s *story) layer() string {
	return map[string]string{"200": "per-ip", "100": "per-user", "5": "login"}[s.header.Get("X-RateLimit-Limit")]
}

func (s *story) checkRetryAfter(resp *http.Response) error {
	text := resp.Header.Get("Retry-After")
	seconds, err := strconv.Atoi(text)
	switch denied := resp.StatusCode == http.StatusTooManyRequests; {
	case denied && (err != nil || seconds < 1 || seconds > 60):
		return fmt.Errorf("status 429 with Retry-After %q, want 1 to 60 seconds", text)
	case !denied && text != "":
		return fmt.Errorf("status %d with Retry-After %q", resp.StatusCode, text)
	}
	return nil
}

// left says how much the tightest layer has left; nothing where none applied.
func (s *story) left() string {
	if s.layer() == "" {
		return ""
	}
	return fmt.Sprintf("%s: %s of %s left", s.layer(), s.header.Get("X-RateLimit-Remaining"), s.header.Get("X-RateLimit-Limit"))
}

func (s *story) print(request, client, user string, times int, status, left string) {
	if s.err != nil {
		return
	}
	if times > 1 {
		request = fmt.Sprintf("%d x %s", times, request)
	}
	line := fmt.Sprintf("   %-25s  %-5s  %-20s  %-21s  %s", client, user, request, status, left)
	fmt.Println(strings.TrimRight(line, " "))
}

// showHeaders prints what the last answer says about the limits.
func (s *story) showHeaders() {
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After"} {
		if value := s.header.Get(name); s.err == nil && value != "" {
			fmt.Printf("      %s: %s\n", name, value)
		}
	}
}
