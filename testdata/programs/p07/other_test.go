package p07

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
)

func newGuard(t *testing.T) *failmode.Guard {
	guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: limitertest.Redis(t), Namespace: "app", Budget: time.Second}}
	t.Cleanup(func() { _ = guard.Close() })
	return guard
}

// A worker waits for its turn, gives back what it did not do, and pays what a job
// really took.
func TestWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard, jobs := newGuard(t), make(chan string, 32)
		for range 30 {
			jobs <- "job"
		}
		close(jobs)
		sent, begun := 0, time.Now()
		err := work(t.Context(), guard, jobs, func(context.Context, string) (int64, error) {
			if sent++; sent%3 == 0 {
				return 0, errors.New("refused by the provider")
			}
			return 20, nil
		})
		// 20 jobs of 20 units, of which 100 are there at first and 100 come each second.
		if took := time.Since(begun).Seconds(); err != nil || sent != 30 || took < 2.9 || took > 3.2 {
			t.Errorf("%v, %d jobs in %v s", err, sent, took)
		}
	})
}

// A call is the POST that it is: by address, and by key for one service.
func TestInterceptor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit, err := grpcLimits(newGuard(t))
		if err != nil {
			t.Fatal(err)
		}
		intercept := interceptor(limit)
		call := func(method, key string) codes.Code {
			ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(203, 0, 113, 1), Port: 4711}})
			ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer "+key))
			_, err := intercept(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, nil })
			return status.Code(err)
		}
		for i := range 12 {
			want := codes.OK
			if i >= 10 {
				want = codes.ResourceExhausted
			}
			if got := call("/shop.Search/Find", "a"); got != want {
				t.Errorf("call %d: %s", i, got)
			}
		}
		if a, b := call("/shop.Search/Find", "b"), call("/shop.Cart/Add", "a"); a != codes.OK || b != codes.OK {
			t.Errorf("another key: %s, another service: %s", a, b)
		}
	})
}
