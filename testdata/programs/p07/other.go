// Without HTTP: a background worker, and a gRPC interceptor.
package p07

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

func work(ctx context.Context, guard *failmode.Guard, jobs <-chan string, send func(context.Context, string) (units int64, err error)) error {
	for job := range jobs {
		check := algorithms.Check{Rule: "mail", Key: "provider", Cost: 10, Fail: failmode.Local,
			Limit: algorithms.Limit{Rate: 100, Period: time.Second, Algorithm: algorithms.TokenBucket}}
		d, err := algorithms.Wait(ctx, guard, check)
		if err != nil {
			return err
		}
		units, err := send(ctx, job)
		if err != nil {
			_ = algorithms.Refund(ctx, guard, d)
			continue
		}
		mail, _ := d.Result("mail")
		_, _ = guard.Settle(ctx, algorithms.Charge{Result: mail, Cost: units})
	}
	return nil
}

func grpcLimits(guard *failmode.Guard) (*ratelimit.Middleware, error) { // the same rules, files, metrics and hooks as for HTTP
	return ratelimit.New(ratelimit.Config{Limiter: guard, Rules: []ratelimit.Rule{
		{Name: "grpc-ip", Key: keyfunc.IP, Limit: algorithms.PerMinute(600)},
		{Name: "grpc-search", Match: []string{"POST /shop.Search/{method}"}, Key: keyfunc.APIKey("Authorization"), Limit: algorithms.PerSecond(10)},
	}})
}

func interceptor(limit *ratelimit.Middleware) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		r := (&http.Request{Method: http.MethodPost, URL: &url.URL{Path: info.FullMethod}, Header: http.Header{}}).WithContext(ctx)
		if p, ok := peer.FromContext(ctx); ok {
			r.RemoteAddr = p.Addr.String()
		}
		md, _ := metadata.FromIncomingContext(ctx)
		for name, values := range md {
			r.Header[http.CanonicalHeaderKey(name)] = values
		}
		d, err := limit.Take(r)
		if err != nil {
			return nil, status.Error(codes.Unauthenticated, "no key")
		}
		if !d.Allowed {
			return nil, status.Errorf(codes.ResourceExhausted, "retry in %s", d.RetryAfter())
		}
		return next(ctx, req)
	}
}
