package middleware

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// A denialLog bounds how many denials a rule logs per second, and counts those
// that it leaves out. A denial costs it two atomic operations, and no lock or
// timer.
type denialLog struct {
	window     atomic.Int64 // second<<lineBits + lines written in it
	suppressed atomic.Int64
}

const (
	lineBits = 20
	maxShown = 128 // bytes of a key
)

// take reports whether a line may be written, and how many were left out since
// the last one.
func (l *denialLog) take(now time.Duration, rate int64) (suppressed int64, ok bool) {
	second := int64(now/time.Second) + 1 // never 0, which is the zero value's
	for {
		window := l.window.Load()
		next := window + 1
		if window>>lineBits != second {
			next = second<<lineBits + 1
		} else if window&(1<<lineBits-1) >= rate {
			l.suppressed.Add(1)
			return 0, false
		}
		if l.window.CompareAndSwap(window, next) {
			return l.suppressed.Swap(0), true
		}
	}
}

// logDenial logs a denial, unless its rule has logged enough in this second.
func (m *Middleware) logDenial(ctx context.Context, l *denialLog, now time.Duration, r *algorithms.Result) {
	if m.lines <= 0 || !m.logger.Enabled(ctx, slog.LevelInfo) {
		return
	}
	suppressed, ok := l.take(now, m.lines)
	if !ok {
		return
	}
	attrs := []slog.Attr{
		slog.String("rule", r.Check.Rule),
		slog.String("key", m.shown(r.Check.Key)),
		slog.String("algorithm", algorithmOf(r.Check.Limit)),
		slog.String("source", originNames[originOf(r.Source)]),
		slog.Duration("retry_after", r.RetryAfter),
		slog.String("limit", r.Check.Limit.String()),
		slog.Int64("cost", r.Check.Cost),
		slog.Int64("suppressed", suppressed),
	}
	if r.BannedFor > 0 {
		attrs = append(attrs, slog.Bool("banned", true))
	}
	if r.Check.Shadow {
		attrs = append(attrs, slog.Bool("shadow", true))
	}
	m.logger.LogAttrs(ctx, slog.LevelInfo, "ratelimit: denied", attrs...)
}

// hashSecret belongs to this process, so that nobody who reads its log can find
// an address by hashing all of them.
var hashSecret = sync.OnceValue(func() []byte {
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret) // never fails
	return secret
})

// shown returns a key as logs and TopDenied show it. The empty key, of requests
// without one, is no secret.
func (m *Middleware) shown(key string) string {
	key = bounded(key)
	if m.logKeys || key == "" {
		return key
	}
	return keyID(key)
}

// keyID is a hash of a key that names it in this process.
func keyID(key string) string {
	h := hmac.New(sha256.New, hashSecret())
	h.Write([]byte(key))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// bounded replaces a long key by its hash. Clients that choose their keys must not
// fill the memory or the log.
func bounded(key string) string {
	if len(key) <= maxShown {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "#" + hex.EncodeToString(sum[:16])
}

// isBounded reports whether a key may be a hash that [bounded] has made.
func isBounded(key string) bool { return len(key) == 33 && key[0] == '#' }
