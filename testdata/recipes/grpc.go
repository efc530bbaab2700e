package recipes

import (
	"context"
	"net/http"
	"net/url"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// takeRPC charges a call. To the rules it is a POST: Match: []string{"POST /shop.Search/{method}"}.
func takeRPC(ctx context.Context, limit *ratelimit.Middleware, method string) error {
	r := (&http.Request{Method: http.MethodPost, URL: &url.URL{Path: method}, Header: http.Header{}}).WithContext(ctx)
	if p, ok := peer.FromContext(ctx); ok {
		r.RemoteAddr = p.Addr.String()
	}
	md, _ := metadata.FromIncomingContext(ctx)
	for name, values := range md {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	switch d, err := limit.Take(r); {
	case err != nil:
		return status.Error(codes.Unauthenticated, "no key")
	case !d.Allowed:
		return status.Errorf(codes.ResourceExhausted, "retry in %s", d.RetryAfter())
	}
	return nil
}

func unary(limit *ratelimit.Middleware) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if err := takeRPC(ctx, limit, info.FullMethod); err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

func stream(calls, messages *ratelimit.Middleware) grpc.StreamServerInterceptor {
	return func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if err := takeRPC(s.Context(), calls, info.FullMethod); err != nil {
			return err
		}
		return next(srv, &limitedStream{s, messages, info.FullMethod})
	}
}

// A limitedStream charges each message that the client sends.
type limitedStream struct {
	grpc.ServerStream
	limit  *ratelimit.Middleware
	method string
}

func (s *limitedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return takeRPC(s.Context(), s.limit, s.method)
}
