package redistest

import (
	"bytes"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy is the network in front of a server: it forwards connections, slows,
// stalls, cuts or refuses them. Its methods may be called from several
// goroutines, but Resume only from the test's own.
//
// While the server is stopped, connections are accepted and reset.
type Proxy struct {
	Addr string // "127.0.0.1:port", also after Refuse

	done chan struct{}  // closed with the proxy
	all  sync.WaitGroup // its goroutines

	mu       sync.Mutex
	changed  *sync.Cond // on mu: a stall is over, or the proxy closed
	target   string     // where new connections lead
	listener net.Listener
	links    map[*link]bool
	accepted int
	latency  time.Duration
	jitter   time.Duration
	stalled  bool   // replies are kept
	losing   int    // so many replies will be lost,
	losingTo []byte // of requests that contain this
}

// A direction is where bytes go: they are requests or replies.
type direction int

const (
	requests direction = iota
	replies
)

// StartProxy starts a proxy in front of the server at addr, on a port of its
// own. It is closed in tb's Cleanup.
func StartProxy(tb testing.TB, addr string) *Proxy {
	tb.Helper()
	p := &Proxy{target: addr, links: map[*link]bool{}}
	p.changed = sync.NewCond(&p.mu)
	tb.Cleanup(func() { outside(p.close) })
	var err error
	outside(func() {
		p.done = make(chan struct{})
		for range 10 { // as a server: anybody may take the port first
			var port int
			if port, err = freePort(); err != nil {
				return
			}
			p.Addr = loopback(port)
			if err = p.listen(); err == nil {
				return
			}
		}
	})
	if err != nil {
		tb.Fatalf("redistest: start a proxy: %v", err)
	}
	return p
}

// SetLatency makes every round trip longer by latency, and by up to jitter
// more or less: half of it before the server, half behind. A request under way
// when its sender gives up still arrives.
func (p *Proxy) SetLatency(latency, jitter time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency, p.jitter = latency, jitter
}

// StallReplies keeps what the server sends: it executes requests, and nobody
// hears of it until Resume.
func (p *Proxy) StallReplies() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = true
}

// LoseReplies resets the connections of the next n requests that contain text,
// after the server has executed them and instead of its reply. The text must be
// within one write of the client, as go-redis writes a command.
func (p *Proxy) LoseReplies(n int, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losing, p.losingTo = n, []byte(text)
}

// Refuse makes new connections fail at once. Those that there are stay.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
}

// Cut resets all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
}

// Resume ends all that the other methods began.
func (p *Proxy) Resume(tb testing.TB) {
	tb.Helper()
	p.mu.Lock()
	p.latency, p.jitter, p.stalled, p.losing = 0, 0, false, 0
	refusing := p.listener == nil
	p.changed.Broadcast()
	p.mu.Unlock()
	var err error
	if refusing {
		outside(func() { err = p.listen() })
	}
	if err != nil {
		tb.Fatalf("redistest: proxy %s: %v", p.Addr, err)
	}
}

// MoveTo leads new connections to the server at addr, as a name or a Service does after a
// failover. Those that there are stay.
func (p *Proxy) MoveTo(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
}

// Accepted is how many connections there have been.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

func (p *Proxy) listen() error {
	l, err := net.Listen("tcp", p.Addr)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener = l
	p.all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // closed
			}
			p.all.Go(func() { p.serve(client.(*net.TCPConn)) })
		}
	})
	return nil
}

func (p *Proxy) close() {
	p.Refuse()
	p.mu.Lock()
	close(p.done)
	p.changed.Broadcast()
	p.mu.Unlock()
	p.Cut()
	p.all.Wait()
}

func (p *Proxy) closed() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// A link is a client's connection and the one to the server.
type link struct {
	client, server *net.TCPConn
	lose           bool // the next reply; guarded by the proxy's mu
}

func (p *Proxy) serve(client *net.TCPConn) {
	l := &link{client: client}
	defer l.reset()
	p.mu.Lock()
	p.accepted++
	target := p.target
	p.mu.Unlock()
	server, err := net.DialTimeout("tcp", target, dialTimeout)
	if err != nil {
		return
	}
	l.server = server.(*net.TCPConn)

	p.mu.Lock()
	p.links[l] = true
	if p.closed() {
		l.reset()
	}
	p.mu.Unlock()

	sent := make(chan struct{})
	go func() {
		defer close(sent)
		p.forward(l, requests, l.client, l.server)
		_ = l.server.CloseWrite() // it may still have something to say
	}()
	p.forward(l, replies, l.server, l.client)
	_ = l.client.Close()
	<-sent

	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// reset closes both connections without good-bye.
func (l *link) reset() {
	for _, c := range []*net.TCPConn{l.client, l.server} {
		if c != nil {
			_ = c.SetLinger(0)
			_ = c.Close()
		}
	}
}

// forward copies one direction until its sender is done or the link is cut.
func (p *Proxy) forward(l *link, d direction, from, to *net.TCPConn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !p.pass(l, d, buf[:n]) {
			l.reset()
			return
		}
		if _, writeErr := to.Write(buf[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

// pass waits until data may go on, and reports whether it may.
func (p *Proxy) pass(l *link, d direction, data []byte) bool {
	p.mu.Lock()
	late := p.latency / 2
	if p.jitter > 0 {
		late += rand.N(p.jitter) - p.jitter/2
	}
	p.mu.Unlock()
	if late > 0 {
		select {
		case <-p.done:
		case <-time.After(late):
		}
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	for d == replies && p.stalled && !p.closed() {
		p.changed.Wait()
	}
	switch {
	case d == replies && l.lose:
		return false
	case d == requests && p.losing > 0 && bytes.Contains(data, p.losingTo):
		p.losing--
		l.lose = true
	}
	return !p.closed()
}
