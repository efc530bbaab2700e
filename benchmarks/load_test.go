package benchmarks

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A traffic is what another process sends over HTTP: this test binary, started
// again. So the measured process does nothing but serve.
type traffic struct {
	Addr        string
	Request     string // method and path
	Connections int    // kept open, one request at a time on each
	Seconds     float64
	Rate        float64 // arrivals a second, whatever becomes of those before; 0 means as many as are answered
	Clients     int     // requests take turns as so many clients, by X-Forwarded-For and X-User-ID; 0 means one
	From        int     // each connection comes from an address of its own, 127.0.From.n; 0 means from one address
}

// An outcome is what a traffic was answered. Latencies count from when a request
// should have been sent.
type outcome struct {
	Sent, Admitted, Denied, Other int
	Seconds                       float64
	P50, P99                      time.Duration
}

const trafficEnv = "BENCHMARKS_TRAFFIC"

// TestMain is the other process, too.
func TestMain(m *testing.M) {
	text, ok := os.LookupEnv(trafficEnv)
	if !ok {
		if flag.Parse(); flag.Lookup("test.bench").Value.String() != "" {
			announce(os.Stdout)
		}
		os.Exit(m.Run())
	}
	var t traffic
	err := json.Unmarshal([]byte(text), &t)
	if err == nil {
		var o outcome
		if o, err = t.run(); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(o)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// send has another process send it.
func (t traffic) send() (o outcome, err error) {
	program, err := os.Executable()
	if err != nil {
		return o, err
	}
	spec, err := json.Marshal(t)
	if err != nil {
		return o, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(t.Seconds*float64(time.Second))+30*time.Second)
	defer cancel()
	var complaints bytes.Buffer
	cmd := exec.CommandContext(ctx, program)
	cmd.Env, cmd.Stderr = append(os.Environ(), trafficEnv+"="+string(spec)), &complaints
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &o)
	}
	if err != nil {
		return o, fmt.Errorf("the process that sends: %w: %s", err, &complaints)
	}
	return o, nil
}

func (t traffic) run() (o outcome, err error) {
	conns := make([]*conn, t.Connections)
	for i := range conns {
		if conns[i], err = t.dial(i); err != nil {
			return o, err
		}
	}
	begin := time.Now()
	length := time.Duration(t.Seconds * float64(time.Second))
	total := int64(math.MaxInt64)
	if t.Rate > 0 {
		total = int64(t.Rate * t.Seconds)
	}
	due := func(n int64) time.Time { return begin.Add(time.Duration(float64(n) / t.Rate * float64(time.Second))) }
	arrivals := make(chan int64, 1<<16)
	if t.Rate > 0 {
		go func() {
			defer close(arrivals)
			for n := range total {
				sleepUntil(due(n))
				arrivals <- n
			}
		}()
	}
	var next atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, len(conns))
	latencies := make([][]time.Duration, len(conns))
	for i, c := range conns {
		all.Go(func() {
			for {
				var at time.Time
				n := next.Add(1)
				if t.Rate > 0 {
					arrival, ok := <-arrivals
					if !ok {
						return
					}
					n, at = arrival, due(arrival)
				} else if at = time.Now(); at.Sub(begin) > length {
					return
				}
				if errs[i] = c.ask(t.client(int(n))); errs[i] != nil {
					return
				}
				latencies[i] = append(latencies[i], time.Since(at))
			}
		})
	}
	all.Wait()
	var sorted []time.Duration
	for i, c := range conns {
		_ = c.Close()
		o.Admitted += c.admitted
		o.Denied += c.denied
		o.Other += c.other
		sorted = append(sorted, latencies[i]...)
	}
	slices.Sort(sorted)
	o.Sent, o.Seconds = len(sorted), time.Since(begin).Seconds()
	o.P50, o.P99 = quantile(sorted, .5), quantile(sorted, .99)
	return o, errors.Join(errs...)
}

// client is the fields of a header that say who asks.
func (t traffic) client(n int) (fields string) {
	if t.Clients == 0 {
		return ""
	}
	n = n * stride % t.Clients
	return "X-Forwarded-For: " + ip(n) + "\r\nX-User-ID: " + users[n] + "\r\n"
}

// A conn asks one request after the other, with little work for the process.
type conn struct {
	net.Conn
	in                      *bufio.Reader
	request                 string
	admitted, denied, other int
}

func (t traffic) dial(i int) (*conn, error) {
	var d net.Dialer
	if t.From > 0 {
		d.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, byte(t.From), byte(i+1))}
	}
	c, err := d.Dial("tcp", t.Addr)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, in: bufio.NewReader(c), request: t.Request + " HTTP/1.1\r\nHost: localhost\r\n"}, nil
}

func (c *conn) ask(fields string) error {
	if _, err := io.WriteString(c, c.request+fields+"\r\n"); err != nil {
		return err
	}
	status, length := 0, 0
	for first := true; ; first = false {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		if first && len(line) >= len("HTTP/1.1 200") {
			if status, err = strconv.Atoi(string(line[9:12])); err != nil {
				return err
			}
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return err
			}
		}
		if len(line) == 0 {
			break
		}
	}
	switch status {
	case http.StatusNoContent:
		c.admitted++
	case http.StatusTooManyRequests:
		c.denied++
	default:
		c.other++
	}
	_, err := c.in.Discard(length)
	return err
}

// listen serves a handler until the test ends, and returns where.
func listen(tb testing.TB, h http.Handler) (addr string) {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // which ends with Close
	}()
	tb.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return l.Addr().String()
}
