package lab

import (
	"fmt"
	"go/format"
	"strings"
	"time"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	"github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

// ruleFile is a rule file with the limit, which the loader accepts.
func ruleFile(limit ratelimit.Limit) (string, error) {
	text := "version: 1\nrules:\n  - name: per-ip\n    key: ip\n    limit: " + limit.String() + "\n"
	_, err := new(rulefile.Loader).Parse("lab", []byte(text))
	return text, err
}

// program is a program with the limit.
func program(limit ratelimit.Limit) (string, error) {
	rules := []ratelimit.Rule{{Name: "per-ip", Key: keyfunc.IP, Limit: limit}}
	if err := middleware.ValidateRules(rules); err != nil {
		return "", err
	}
	text, err := format.Source([]byte(strings.Replace(programText, "LIMIT", literal(limit), 1)))
	return string(text), err
}

const programText = `package main

import (
	"log"
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

func main() {
	limit, err := ratelimit.New(ratelimit.Config{
		// For several processes: a failmode.Guard around algorithms.Redis.
		Limiter: new(algorithms.Memory),
		Rules: []ratelimit.Rule{{
			Name:  "per-ip",
			Key:   keyfunc.IP, // behind a proxy: keyfunc.Proxies
			Limit: LIMIT,
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{
		Addr:              "localhost:8080",
		Handler:           limit.Handler(http.DefaultServeMux), // your handler
		ReadHeaderTimeout: 5 * time.Second,
	}
	log.Fatal(server.ListenAndServe())
}
`

// goName is an algorithm as Go spells it.
func goName(a algorithms.Algorithm) string {
	if a == algorithms.GCRA {
		return "GCRA" // an abbreviation
	}
	words := strings.Split(string(a), "_")
	for i, word := range words {
		words[i] = strings.ToUpper(word[:1]) + word[1:]
	}
	return strings.Join(words, "")
}

// literal is the limit in Go.
func literal(l ratelimit.Limit) string {
	if l == ratelimit.MaxInFlight(l.Rate) {
		return fmt.Sprintf("ratelimit.MaxInFlight(%d)", l.Rate)
	}
	burst := ""
	if l.Burst != 0 {
		burst = fmt.Sprintf("Burst: %d,\n", l.Burst)
	}
	return fmt.Sprintf("ratelimit.Limit{\nRate: %d,\nPeriod: %s,\n%sAlgorithm: algorithms.%s,\n}", l.Rate, duration(l.Period), burst, goName(l.Algorithm))
}

// duration is d in Go, in the largest unit that it is a multiple of.
func duration(d time.Duration) string {
	for _, unit := range []struct {
		d    time.Duration
		name string
	}{{time.Hour, "Hour"}, {time.Minute, "Minute"}, {time.Second, "Second"}, {time.Millisecond, "Millisecond"}} {
		if d == unit.d {
			return "time." + unit.name
		}
		if d%unit.d == 0 {
			return fmt.Sprintf("%d * time.%s", d/unit.d, unit.name)
		}
	}
	return fmt.Sprintf("%d * time.Microsecond", d.Microseconds())
}
