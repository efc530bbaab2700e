package monitor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/background"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// answer is what a Redis says after "-".
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

const (
	wrongType = answer("WRONGTYPE Operation against a key holding the wrong kind of value")
	readOnly  = answer("READONLY You can't write against a read only replica.")
	tooMany   = answer("ERR max number of clients reached")
)

var errSilent = fmt.Errorf("no answer: %w", context.DeadlineExceeded)

const budget = 50 * time.Millisecond

// A fake is a store that answers probes as it is told.
type fake struct {
	kept, fresh, probe     error // of Ask, of Ask on a new connection, of Probe
	takes                  time.Duration
	asked, anew, probed    atomic.Int64
	redials, drops, inside atomic.Int64
	most                   atomic.Int64 // probes at a time
	within                 atomic.Int64 // of the last Ask on a new connection
}

func (s *fake) Names(...int) []string { return []string{"server"} }
func (s *fake) Budget() time.Duration { return budget }
func (s *fake) HangUp()               {}
func (s *fake) Warnings() []string    { return nil }

func (s *fake) Drop(int)                                         { s.drops.Add(1) }
func (s *fake) Redial(context.Context, int)                      { s.redials.Add(1) }
func (s *fake) ServerWarnings(context.Context) ([]string, error) { return nil, nil }

func (s *fake) Probe(context.Context, int) error {
	s.probed.Add(1)
	return s.probe
}

func (s *fake) Ask(ctx context.Context, _ int, anew bool) error {
	s.most.Store(max(s.most.Load(), s.inside.Add(1)))
	defer s.inside.Add(-1)
	if s.asked.Add(1); anew {
		s.anew.Add(1)
		s.within.Store(0)
		if end, ok := ctx.Deadline(); ok {
			s.within.Store(int64(time.Until(end)))
		}
		return s.fresh
	}
	time.Sleep(s.takes)
	return s.kept
}

// watching runs a test in a bubble with a Monitor of a store.
func watching(t *testing.T, s *fake, f func(t *testing.T, m *Monitor, log *strings.Builder)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := new(strings.Builder)
		logger := slog.New(slog.NewTextHandler(log, nil))
		var work background.Group
		work.Start(logger)
		m := new(Monitor)
		m.Start(s, &work, logger)
		defer work.End()
		defer m.End()
		m.Circuit(0)
		time.Sleep(time.Second)
		s.asked.Store(0) // by which the connection was opened
		s.anew.Store(0)
		f(t, m, log)
	})
}

// report reports the outcome of a decision on a key, and returns its error then.
func (m *Monitor) report(key string, err error) error {
	results := []algorithms.Result{{Check: algorithms.Check{Key: key}, Err: err}}
	m.Report(context.Background(), time.Now(), []*Circuit{m.Circuit(0)}, results, nil)
	return results[0].Err
}

// What a decision met, what the connection that is kept and a new one say, and what
// becomes of it.
func TestVerdicts(t *testing.T) {
	none := errors.ErrUnsupported
	for name, c := range map[string]struct {
		met                error
		times              int
		kept, fresh, probe error
		success            bool // of a decision, while the probe is under way
		open               bool
		asked, anew        int64
		redials            int64
	}{
		"an error, the server is well":                         {wrongType, 1, nil, nil, nil, false, false, 2, 1, 1},
		"an error, the server is well for old connections":     {wrongType, 1, nil, tooMany, nil, false, false, 2, 1, 0},
		"an error, in whatever words":                          {answer("NAPPING"), 1, answer("NAPPING"), answer("NAPPING"), nil, false, true, 2, 1, 0},
		"refused":                                              {syscall.ECONNREFUSED, 1, io.EOF, syscall.ECONNREFUSED, nil, false, true, 2, 1, 0},
		"reset, by a proxy that closes connections":            {syscall.ECONNRESET, 1, io.EOF, nil, nil, false, false, 2, 1, 0},
		"a replica by now, and the address has moved":          {readOnly, 1, readOnly, nil, nil, false, false, 2, 1, 1},
		"a replica, and so is the new one":                     {readOnly, 1, readOnly, readOnly, nil, false, true, 2, 1, 0},
		"late, once":                                           {errSilent, 1, errSilent, errSilent, nil, false, false, 0, 0, 0},
		"late, and the server is well":                         {errSilent, 5, nil, errSilent, nil, false, false, 1, 0, 0},
		"late, and the server is silent":                       {errSilent, 5, errSilent, errSilent, nil, false, true, 2, 1, 0},
		"late, and a firewall has forgotten the connection":    {errSilent, 5, errSilent, nil, nil, false, false, 2, 1, 0},
		"late, and new connections fail":                       {errSilent, 5, nil, tooMany, nil, false, false, 1, 0, 0},
		"an error, new connections fail, and decisions do not": {syscall.ECONNRESET, 1, io.EOF, tooMany, nil, true, false, 2, 1, 0},
		"late, the probe is, too, and decisions are not":       {errSilent, 5, errSilent, errSilent, nil, true, false, 2, 1, 0},
		"no such connections, and well":                        {errSilent, 5, none, none, nil, false, false, 1, 0, 0},
		"no such connections, and silent":                      {errSilent, 5, none, none, errSilent, false, true, 1, 0, 0},
		"this process could not send":                          {redis.ErrPoolTimeout, 99, errSilent, errSilent, errSilent, false, false, 0, 0, 0},
		"the key is moving":                                    {answer("MOVED 1 127.0.0.1:1"), 99, errSilent, errSilent, errSilent, false, false, 0, 0, 0},
		"the script says that the value is foreign":            {transport.ErrForeign, 99, errSilent, errSilent, errSilent, false, false, 0, 0, 0},
		"the node has no slots any more":                       {readOnly, 1, transport.ErrGone, transport.ErrGone, nil, false, false, 2, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := &fake{kept: c.kept, fresh: c.fresh, probe: c.probe, takes: 10 * time.Millisecond}
			watching(t, s, func(t *testing.T, m *Monitor, _ *strings.Builder) {
				var told atomic.Int64
				m.Back = func(_ int, all bool) {
					if all {
						told.Add(1)
					}
				}
				for i := range c.times {
					_ = m.report(fmt.Sprint(i), c.met)
				}
				time.Sleep(time.Millisecond)
				if c.success {
					_ = m.report("k", nil)
				}
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
				if got := m.Circuit(0).IsOpen(); got != c.open || s.asked.Load() != c.asked || s.anew.Load() != c.anew || s.redials.Load() != c.redials || s.drops.Load() > 0 != c.open {
					t.Errorf("open %v, asked %d times, %d anew, %d redials; want %v, %d, %d, %d",
						got, s.asked.Load(), s.anew.Load(), s.redials.Load(), c.open, c.asked, c.anew, c.redials)
				}
				if moved := c.anew > 0 && c.fresh == nil; told.Load() == 1 != moved {
					t.Errorf("told %d times what runs, where another server may have come is %v", told.Load(), moved)
				}
				if within := time.Duration(s.within.Load()); kindOf(c.kept) == late && c.anew > 0 && (within == 0 || within > budget*2/5) {
					t.Errorf("after a silent one, a new connection has %s", within)
				}
			})
		})
	}
}

// Errors for many keys open a circuit although probes are good; one key does not, however
// often it is asked for, nor do late answers, however many they are.
func TestErrorsBesideGoodProbes(t *testing.T) {
	for name, c := range map[string]struct {
		decisions, keys int
		err             error
		good            int // that succeed, for each that does not
		pause           time.Duration
		open            bool
	}{
		"of 20 keys":                 {decisions: 20, keys: 20, err: wrongType, open: true},
		"of 19 keys":                 {decisions: 1000, keys: 19, err: wrongType},
		"of one key":                 {decisions: 10_000, keys: 1, err: wrongType},
		"of one key, for a minute":   {decisions: 6000, keys: 1, err: wrongType, pause: 10 * time.Millisecond},
		"one decision in three":      {decisions: 100, keys: 100, err: wrongType, good: 2},
		"few in a second":            {decisions: 100, keys: 100, err: wrongType, pause: 60 * time.Millisecond},
		"connections break":          {decisions: 20, keys: 20, err: syscall.ECONNRESET, open: true},
		"late answers":               {decisions: 10_000, keys: 10_000, err: errSilent},
		"late answers, for a minute": {decisions: 6000, keys: 6000, err: errSilent, pause: 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			s := new(fake)
			watching(t, s, func(t *testing.T, m *Monitor, log *strings.Builder) {
				begun := time.Now()
				for i := range c.decisions {
					_ = m.report(fmt.Sprint(i%c.keys), c.err)
					for range c.good {
						_ = m.report("good", nil)
					}
					synctest.Wait()
					time.Sleep(c.pause)
				}
				synctest.Wait()
				state := m.States()[0]
				if state.Open != c.open || c.open && !errors.Is(state.Err, c.err) {
					t.Errorf("open %v, want %v; %v", state.Open, c.open, state.Err)
				}
				if most := 1 + int64(time.Since(begun)/probeInterval); s.asked.Load()-s.anew.Load() > most {
					t.Errorf("%d probes, want at most %d", s.asked.Load(), most)
				}
				if n := s.redials.Load(); transport.Answered(c.err) != (n > 0) || n > 1+int64(time.Since(begun)/time.Minute) {
					t.Errorf("old connections were closed %d times", n)
				}
				if c.open && !strings.Contains(log.String(), "circuit open") {
					t.Errorf("logged:\n%s", log)
				}
			})
		})
	}
}

// However many decisions fail at once, one probe asks.
func TestOneProbeAtATime(t *testing.T) {
	s := &fake{kept: errSilent, fresh: errSilent, takes: budget}
	watching(t, s, func(t *testing.T, m *Monitor, _ *strings.Builder) {
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() { _ = m.report(fmt.Sprint(i), errSilent) })
		}
		all.Wait()
		time.Sleep(budget)
		synctest.Wait()
		if s.most.Load() != 1 || s.asked.Load() != 2 || !m.Circuit(0).IsOpen() {
			t.Errorf("%d probes at a time, %d in all; open %v", s.most.Load(), s.asked.Load(), m.Circuit(0).IsOpen())
		}
	})
}

// A probe that End cuts off says nothing about the server.
func TestAProbeThatEndCutsOff(t *testing.T) {
	s := &fake{kept: context.Canceled, fresh: context.Canceled, takes: budget}
	watching(t, s, func(t *testing.T, m *Monitor, log *strings.Builder) {
		_ = m.report("k", io.EOF)
		if m.End(); m.Circuit(0).now().Opened > 0 || log.Len() > 0 {
			t.Errorf("opened; logged: %s", log)
		}
	})
}

// A server is blamed for an error until a probe is good, and then not for a second; never
// for an answer that is late. What is no outage is logged as it is.
func TestBlame(t *testing.T) {
	s := &fake{takes: 10 * time.Millisecond}
	watching(t, s, func(t *testing.T, m *Monitor, log *strings.Builder) {
		for _, step := range []struct {
			after time.Duration
			err   error
			want  bool
		}{
			{0, errSilent, false},
			{0, wrongType, true},
			{9 * time.Millisecond, wrongType, true},
			{time.Millisecond, wrongType, false},
			{900 * time.Millisecond, wrongType, false}, // and a probe begins
			{900 * time.Millisecond, wrongType, false},
			{2 * time.Second, wrongType, true},
			{time.Second, syscall.ECONNRESET, false},
		} {
			time.Sleep(step.after)
			synctest.Wait()
			err := m.report("k", step.err)
			if IsOutage(err) != step.want || !errors.Is(err, step.err) || err.Error() != step.err.Error() {
				t.Errorf("%v: blamed %v, want %v", err, IsOutage(err), step.want)
			}
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=ERROR") || !strings.Contains(text, string(wrongType)) {
			t.Errorf("logged:\n%s", text)
		}
	})
}

// After an outage there is a new connection for the next probe.
func TestAConnectionAfterAnOutage(t *testing.T) {
	s := &fake{kept: io.EOF, fresh: io.EOF}
	watching(t, s, func(t *testing.T, m *Monitor, log *strings.Builder) {
		_ = m.report("k", io.EOF)
		time.Sleep(time.Second)
		if state := m.States()[0]; state.Open || state.Opened != 1 || s.anew.Load() != 2 {
			t.Errorf("%+v; %d new connections", state, s.anew.Load())
		}
		if text := log.String(); !strings.Contains(text, `class=connection error="failmode: probe: EOF; before it, a decision: EOF"`) {
			t.Errorf("logged:\n%s", text)
		}
	})
}
