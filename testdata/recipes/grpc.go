package recipes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// takeRPC charges a call and waits for its turn. limit's rules have Match: []string{"POST /shop.Search/{method}"}.
func takeRPC(ctx context.Context, limit *ratelimit.Middleware, method string) error {
	r := (&http.Request{Method: http.MethodPost, URL: &url.URL{Path: method}, Header: http.Header{}}).WithContext(ctx)
	if p, ok := peer.FromContext(ctx); ok {
		r.RemoteAddr = p.Addr.String()
	}
	md, _ := metadata.FromIncomingContext(ctx)
	for name, values := range md {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	d, err := limit.Take(r)
	switch {
	case err != nil:
		return status.Error(codeOf(err), "no key")
	case !d.Allowed:
		return denied(limit, d)
	}
	if err := awaitTurn(ctx, d); err != nil {
		return status.FromContextError(err).Err()
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

// codeOf returns the code of a key's error: errors of keyfunc.Required have an HTTP
// status, and all others are the server's failures.
func codeOf(err error) codes.Code {
	refused, ok := errors.AsType[*keyfunc.StatusError](err)
	switch {
	case !ok:
		return codes.Internal
	case refused.Status == http.StatusUnauthorized:
		return codes.Unauthenticated
	case refused.Status == http.StatusForbidden:
		return codes.PermissionDenied
	}
	return codes.InvalidArgument
}

// denied is a denied call's status.
func denied(limit *ratelimit.Middleware, d ratelimit.Decision) error {
	code := codes.ResourceExhausted
	if headers.Status(d) == http.StatusServiceUnavailable { // Redis failed, and all denying rules are ratelimit.FailClosed
		code = codes.Unavailable
	}
	quota := new(errdetails.QuotaFailure)
	for _, rule := range limit.Rules() {
		if r, ok := d.Result(rule.Name); ok && r.Denies() && !rule.Hidden {
			quota.Violations = append(quota.Violations, &errdetails.QuotaFailure_Violation{Subject: rule.Name, Description: r.Check.Limit.String()})
		}
	}
	details := []protoadapt.MessageV1{quota}
	text := "the call costs more than its limit can hold"
	fields := http.Header{}
	headers.SetRetryAfter(fields, d) // nothing if waiting never helps
	if after, ok := headers.RetryAfter(&http.Response{Header: fields}); ok {
		text = fmt.Sprint("retry in ", after)
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
	}
	s, err := status.New(code, text).WithDetails(details...)
	if err != nil { // not reached: the details are valid
		return status.Error(code, text)
	}
	return s.Err()
}
