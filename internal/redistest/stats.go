package redistest

import (
	"fmt"
	"strings"
	"testing"
)

// Executed is how many scripts the server has run since it started or CONFIG
// RESETSTAT, those without a text it knows (NOSCRIPT) left out. After an outage
// it says whether something was executed twice.
func (s *Server) Executed(tb testing.TB) (scripts int) {
	tb.Helper()
	var err error
	outside(func() {
		var info string
		if info, err = s.ask("INFO", "commandstats").Text(); err == nil {
			scripts, err = executed(info)
		}
	})
	if err != nil {
		tb.Fatalf("redistest: %s: %v", s.Addr, err)
	}
	return scripts
}

// executed sums up lines such as
//
//	cmdstat_evalsha:calls=7,usec=180,usec_per_call=25.71,rejected_calls=0,failed_calls=1
func executed(info string) (scripts int, err error) {
	for line := range strings.Lines(info) {
		name, stats, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "cmdstat_evalsha" && name != "cmdstat_eval" {
			continue
		}
		var calls, failed, rejected int
		var usec int64
		var each float64
		if _, err := fmt.Sscanf(stats, "calls=%d,usec=%d,usec_per_call=%g,rejected_calls=%d,failed_calls=%d",
			&calls, &usec, &each, &rejected, &failed); err != nil {
			return 0, fmt.Errorf("%s: %w", line, err)
		}
		scripts += calls - failed
	}
	return scripts, nil
}
