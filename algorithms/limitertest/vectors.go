package limitertest

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// Each file has an algorithm's histories on one key, with answers from models of
// the algorithms in exact fractions. TestVectors of package algorithms writes them.
//
//go:embed vectors/*.json
var vectorFiles embed.FS

// A vector is a history on one key.
type vector struct {
	Name  string       `json:"name"`
	Limit string       `json:"limit"` // as algorithms.ParseLimit reads it
	Steps []vectorStep `json:"steps"`
}

// A vectorStep is something that is done to one check, with what it has to come to.
// Times are in µs, and what is 0 may be left out.
type vectorStep struct {
	At         int64   `json:"at"`        // since the Unix epoch
	Limit      string  `json:"limit"`     // from this step on, if it changes
	Ban        []int64 `json:"ban"`       // from this step on, if it changes: After, Within and For; After 0: no Ban
	Do         string  `json:"do"`        // peek, reset or, by hand, ban; "": Take, or Settle
	Length     int64   `json:"length"`    // of a ban by hand; 0 lifts the ban
	Settle     int     `json:"settle"`    // the step that is to cost Cost then, from 1
	Cost       int64   `json:"cost"`      // 0 means 1 in a Take
	MaxDelay   int64   `json:"max_delay"` // of the check
	Shadow     bool    `json:"shadow"`    // of the check
	Allowed    bool    `json:"allowed"`   // the check has room, and no ban denies it
	Banned     bool    `json:"banned"`
	Charged    int64   `json:"charged"` // 0 means Cost for a Take that has room
	Remaining  int64   `json:"remaining"`
	RetryAfter int64   `json:"retry_after"` // -1 means never
	ResetAfter int64   `json:"reset_after"`
	Delay      int64   `json:"delay"`
}

// vectorCases has a case for each name, of all algorithms.
func vectorCases() (cases []testCase) {
	byName := map[string][]vector{}
	for _, v := range vectors() {
		if byName[v.Name] == nil {
			cases = append(cases, testCase{v.Name, func(c *trial) {
				for i, v := range byName[v.Name] {
					c.replay(v, fmt.Sprint("vector ", i))
				}
			}})
		}
		byName[v.Name] = append(byName[v.Name], v)
	}
	return cases
}

// vectors reads all files. Those of token_bucket are also gcra's.
func vectors() (all []vector) {
	files, err := fs.Glob(vectorFiles, "vectors/*.json")
	if err != nil {
		panic(err)
	}
	for _, file := range files {
		data, err := vectorFiles.ReadFile(file)
		if err != nil {
			panic(err)
		}
		texts := []string{string(data)}
		if strings.Contains(file, "token_bucket") {
			texts = append(texts, strings.ReplaceAll(texts[0], "token_bucket", "gcra"))
		}
		for _, text := range texts {
			var some []vector
			decoder := json.NewDecoder(strings.NewReader(text))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&some); err != nil {
				panic(fmt.Sprintf("limitertest: %s: %v", file, err))
			}
			all = append(all, some...)
		}
	}
	return all
}

// replay takes and settles what the history does, at the same time of a window.
func (c *trial) replay(v vector, key string) {
	c.Helper()
	checked := of(limit(v.Limit))
	checked.Key = key
	results := make([]algorithms.Result, len(v.Steps)+1)
	c.align(checked.Limit.Period, micros(v.Steps[0].At)%checked.Limit.Period)
	now := v.Steps[0].At
	for i, s := range v.Steps {
		c.wait(micros(s.At - now))
		now = s.At
		if s.Limit != "" {
			checked.Limit = limit(s.Limit)
		}
		c.where = fmt.Sprintf("%q of %s, step %d: ", v.Name, v.Limit, i+1)
		if s.Ban != nil {
			checked.Ban = algorithms.Ban{After: s.Ban[0], Within: micros(s.Ban[1]), For: micros(s.Ban[2])}
		}
		switch {
		case s.Do == "reset":
			c.reset(checked)
			continue
		case s.Do == "ban":
			c.ban(micros(s.Length), checked)
			continue
		case s.Settle > 0:
			results[s.Settle] = c.settle(s.Cost, results[s.Settle], s.outcome())
			continue
		}
		checked.Cost, checked.MaxDelay, checked.Shadow = s.Cost, micros(s.MaxDelay), s.Shadow
		if s.Do == "peek" {
			c.peek(checked, s.outcome())
			continue
		}
		results[i+1] = c.take(checked, s.outcome())
	}
	c.where = ""
}

func micros(n int64) time.Duration { return time.Duration(n) * µs }

// outcome is what the step has to come to.
func (s vectorStep) outcome() outcome {
	o := outcome{
		allowed: s.Allowed, isBanned: s.Banned, charged: s.Charged, remaining: s.Remaining,
		retryAfter: micros(s.RetryAfter), resetAfter: micros(s.ResetAfter), delay: micros(s.Delay),
	}
	if s.RetryAfter < 0 {
		o.retryAfter = algorithms.Never
	}
	if s.Allowed && s.Do == "" && s.Charged == 0 {
		o.charged = max(s.Cost, 1)
	}
	return o
}
