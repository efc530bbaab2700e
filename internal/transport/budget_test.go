package transport_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/transport"
	"github.com/seed75154129/ratelimit/internal/wait"
)

// A stall is what blocks, whatever its context says, until the test is over, or
// for so long that no budget survives it.
type stall chan struct{}

func (s stall) wait() {
	select {
	case <-s:
	case <-time.After(3 * time.Second):
	}
}

func (s stall) Allow() error       { s.wait(); return nil }
func (s stall) ReportResult(error) {}

func (s stall) Subscribe(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	s.wait()
	return auth.NewBasicCredentials("", ""), func() error { return nil }, nil
}

// A deafConn is a connection that takes deadlines for a suggestion.
type deafConn struct {
	net.Conn
	stall
}

func (c deafConn) Read([]byte) (int, error) { c.wait(); return 0, net.ErrClosed }

// silent is the address of a server that accepts one connection and says nothing.
func silent(t *testing.T, s stall) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		if conn, err := l.Accept(); err == nil {
			s.wait()
			conn.Close()
			l.Close()
		}
	}()
	return l.Addr().String()
}

// Whatever go-redis calls on the way to an answer, callers wait no longer than
// their budget.
func TestRedisKeepsItsBudgetWhateverTheClientCalls(t *testing.T) {
	cluster, srv := redistest.StartCluster(t), redistest.Start(t)
	s := make(stall)
	t.Cleanup(func() { close(s) })
	credentials := func() (string, string) { s.wait(); return "", "" }
	credentialsContext := func(context.Context) (string, string, error) { s.wait(); return "", "", nil }
	onConnect := func(context.Context, *redis.Conn) error { s.wait(); return nil }
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		s.wait()
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	dialDeaf := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return deafConn{conn, s}, err
	}
	limited := func(o *redis.Options) *redis.Client {
		o.Limiter = s
		return redis.NewClient(o)
	}
	slots := func(context.Context) ([]redis.ClusterSlot, error) { s.wait(); return nil, errors.New("no slots") }

	clients := map[string]algorithms.Client{}
	single := func(name string, o redis.Options) {
		o.Addr = cmp.Or(o.Addr, srv.Addr)
		clients["client: "+name] = redis.NewClient(algorithms.FailFast(&o))
	}
	single("Dialer", redis.Options{Dialer: dial})
	single("Dialer of a deaf connection", redis.Options{Dialer: dialDeaf})
	single("OnConnect", redis.Options{OnConnect: onConnect})
	single("CredentialsProvider", redis.Options{CredentialsProvider: credentials})
	single("CredentialsProviderContext", redis.Options{CredentialsProviderContext: credentialsContext})
	single("StreamingCredentialsProvider", redis.Options{StreamingCredentialsProvider: s})
	single("Limiter", redis.Options{Limiter: s})
	single("no timeouts", redis.Options{Addr: silent(t, s), ReadTimeout: -2, WriteTimeout: -2})
	clients["client: default options"] = redis.NewClient(&redis.Options{Addr: silent(t, s)})
	sharded := func(name string, o redis.ClusterOptions) {
		o.Addrs = cluster.Addrs
		clients["cluster: "+name] = redis.NewClusterClient(algorithms.FailFast(&o))
	}
	sharded("Dialer of a deaf connection", redis.ClusterOptions{Dialer: dialDeaf})
	sharded("OnConnect", redis.ClusterOptions{OnConnect: onConnect})
	sharded("CredentialsProvider", redis.ClusterOptions{CredentialsProvider: credentials})
	sharded("NewClient with a Limiter", redis.ClusterOptions{NewClient: limited})
	sharded("ClusterSlots", redis.ClusterOptions{ClusterSlots: slots})
	ring := func(name string, o redis.RingOptions) {
		o.Addrs, o.ContextTimeoutEnabled, o.Protocol = map[string]string{"a": srv.Addr}, true, 2
		o.HeartbeatFrequency = time.Hour
		clients["ring: "+name] = redis.NewRing(&o)
	}
	ring("OnConnect", redis.RingOptions{OnConnect: onConnect})
	ring("Limiter", redis.RingOptions{Limiter: s})
	ring("NewClient with a Limiter", redis.RingOptions{NewClient: limited})

	const budget = 20 * time.Millisecond
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &algorithms.Redis{Client: client, Namespace: "test", Budget: budget}
			for range 2 {
				begin := time.Now()
				_, err := r.Take(t.Context(), algorithms.Check{Rule: "r", Key: "k", Limit: perDay(10)})
				if took := time.Since(begin); took > budget+time.Second {
					t.Errorf("took %s on a budget of %s", took, budget)
				}
				if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "algorithms: redis: no answer within the budget of 20ms: ") {
					t.Errorf("error: %v", err)
				}
			}
		})
	}
}

// A goroutine for each decision is only the price of what cannot be trusted.
func TestRedisCallsWellBehavedClientsDirectly(t *testing.T) {
	addrs := []string{"127.0.0.1:1"}
	for name, c := range map[string]struct {
		client algorithms.Client
		direct bool
	}{
		"client":   {redis.NewClient(algorithms.FailFast(&redis.Options{})), true},
		"cluster":  {redis.NewClusterClient(algorithms.FailFast(&redis.ClusterOptions{Addrs: addrs})), true},
		"RESP3":    {redis.NewClient(algorithms.FailFast(&redis.Options{Protocol: 3})), false},
		"defaults": {redis.NewClient(&redis.Options{Protocol: 2}), false},
		// Its Dialer is go-redis', with a Dialer of the user's behind it or not.
		"sentinel": {redis.NewFailoverClient(algorithms.FailFast(&redis.FailoverOptions{SentinelAddrs: addrs})), false},
		"wrapped":  {struct{ *redis.ClusterClient }{}, false},
	} {
		if direct := transport.Direct(c.client); direct != c.direct {
			t.Errorf("%s: called directly %v, want %v", name, direct, c.direct)
		}
	}
}

// A decision that got no connection was certainly not executed, and if all were
// in use that is not for Redis to answer for.
func TestRedisKnowsWhatItHasNotSent(t *testing.T) {
	srv := redistest.Start(t)
	full := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: srv.Addr, PoolSize: 1, PoolTimeout: roomy}))
	defer full.Close()
	taken := full.Conn()
	defer taken.Close()
	if err := taken.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s := make(stall)
	defer close(s)
	dialing := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: silent(t, s), TLSConfig: new(tls.Config), DialTimeout: roomy}))
	defer dialing.Close()
	answering := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: srv.Addr, ReadTimeout: roomy}))
	defer answering.Close()
	for _, pool := range []func() error{ // commands and pipelines have one each
		func() error { return answering.Ping(t.Context()).Err() },
		func() error {
			_, err := answering.Pipelined(t.Context(), func(p redis.Pipeliner) error { return p.Ping(t.Context()).Err() })
			return err
		},
	} {
		if err := pool(); err != nil {
			t.Fatal(err)
		}
	}
	srv.Pause(t)
	defer srv.Resume(t)

	for _, c := range []struct {
		client  algorithms.Client
		class   transport.ErrorClass
		certain bool
		text    string
	}{
		{full, transport.ClassBusy, true, "algorithms: redis: too many commands are under way: all 1 connections are in use: context deadline exceeded"},
		{dialing, transport.ClassTimeout, true, "algorithms: redis: no connection within the budget of 20ms: context deadline exceeded"},
		{answering, transport.ClassTimeout, false, "algorithms: redis: no answer within the budget of 20ms: context deadline exceeded: "},
	} {
		for _, sharded := range []bool{false, true} {
			r := &algorithms.Redis{Client: c.client, Namespace: "test", Budget: 20 * time.Millisecond, Sharded: sharded}
			_, err := r.Take(t.Context(), algorithms.Check{Rule: "r", Limit: perDay(1)})
			if transport.ClassOf(err) != c.class || transport.NotExecuted(err) != c.certain || !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), c.text) {
				t.Errorf("sharded %v: class %q, certainly not executed %v: %v; want %q, %v: %s", sharded, transport.ClassOf(err), transport.NotExecuted(err), err, c.class, c.certain, c.text)
			}
		}
	}
}

// A further part of a decision ends with the decision, also if a limiter of the user's own
// is in between and adds to the context, as for a trace. What is begun apart from the
// decision has a budget of its own, and no deadline of a caller counts.
func TestAPartEndsWithItsDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type span struct{}
		tr := transport.New(nil, false, 50*time.Millisecond)
		hurried, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		part := wait.PartOf(hurried, time.Now().Add(30*time.Millisecond))
		for name, c := range map[string]struct {
			ctx  context.Context
			want time.Duration
		}{
			"a decision":        {hurried, 50 * time.Millisecond},
			"a part":            {part, 30 * time.Millisecond},
			"a part in a trace": {context.WithValue(part, span{}, 1), 30 * time.Millisecond},
			"apart":             {context.WithoutCancel(part), 50 * time.Millisecond},
		} {
			if end, _ := tr.Within(c.ctx).Deadline(); time.Until(end) != c.want {
				t.Errorf("%s ends after %s, want %s", name, time.Until(end), c.want)
			}
		}
	})
}
