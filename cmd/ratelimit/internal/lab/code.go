package lab

import (
	"strings"

	"github.com/seed75154129/ratelimit"
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
	return strings.Replace(programText, "LIMIT", limit.String(), 1), nil
}

const programText = `package main

import (
	"log"
	"net/http"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/keyfunc"
)

func main() {
	limit, err := ratelimit.New(ratelimit.Config{
		// For several processes: Limiter: ratelimit.Redis(&redis.Options{…}, "shop").
		Rules: []ratelimit.Rule{{
			Name:  "per-ip",
			Key:   keyfunc.IP, // behind a proxy: keyfunc.Proxies
			Limit: ratelimit.MustParse("LIMIT"),
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("localhost:8080", limit.Handler(http.DefaultServeMux))) // your handler
}
`
