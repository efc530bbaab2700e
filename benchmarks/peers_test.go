package benchmarks

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/go-chi/httprate"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	throttledmemory "github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululehttp "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/seed75154129/ratelimit/algorithms"
)

// A layer is one limit of a stack, as peers have it: each of them takes one
// limit at a time, and a stack is several limiters one after the other.
type layer struct {
	name  string
	limit algorithms.Limit
	key   func(client int) string
	keyOf func(*http.Request) string
}

// layered is the standard stack for peers, with another limit per address.
func layered(first algorithms.Limit) []layer {
	user := func(r *http.Request) string {
		user, _ := userOf(r.Context())
		return user
	}
	return []layer{
		{"ip", first, ip, host},
		{"user", perUser, func(client int) string { return users[client] }, user},
		{"search", perEndpoint, ip, host},
	}
}

func host(r *http.Request) string {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return host
}

// A peer is another limiter: its decisions alone, with keys made beforehand, and
// as the handler that its README shows.
type peer struct {
	name    string
	decide  func(client int) (allowed bool, err error)
	handler http.Handler
}

// redisPeers are the peers that count in Redis, all through one client.
func redisPeers(tb testing.TB, c *redis.Client, layers []layer) []peer {
	tb.Helper()
	throttledStore := func(l layer) throttled.GCRAStoreCtx {
		store, err := throttledredis.NewCtx(c, "throttled:"+l.name+":")
		if err != nil {
			tb.Fatal(err)
		}
		return store
	}
	ululeStore := func(l layer) ulule.Store {
		store, err := ululeredis.NewStoreWithOptions(c, ulule.StoreOptions{Prefix: "ulule:" + l.name})
		if err != nil {
			tb.Fatal(err)
		}
		return store
	}
	return []peer{
		redisRate(c, layers),
		rueidisPeer(tb, c.Options().Addr, layers),
		throttledPeer(tb, layers, throttledStore),
		ululePeer(layers, ululeStore),
	}
}

// memoryPeers are the peers that count in a process.
func memoryPeers(tb testing.TB, layers []layer) []peer {
	tb.Helper()
	store := func(layer) throttled.GCRAStoreCtx {
		store, err := throttledmemory.NewCtx(65536)
		if err != nil {
			tb.Fatal(err)
		}
		return store
	}
	return []peer{
		httprateHandler(layers),
		throttledPeer(tb, layers, store),
		ululePeer(layers, func(layer) ulule.Store { return ululememory.NewStore() }),
	}
}

// redisRate has no middleware; its handler is the least that one would be.
func redisRate(c *redis.Client, layers []layer) peer {
	limiter := redis_rate.NewLimiter(c)
	limits := make([]redis_rate.Limit, len(layers))
	keys := make([][clients]string, len(layers))
	for i, l := range layers {
		limits[i] = redis_rate.Limit{Rate: int(l.limit.Rate), Burst: int(l.limit.Quota()), Period: l.limit.Period}
		for client := range clients {
			keys[i][client] = l.name + ":" + l.key(client)
		}
	}
	return peer{"redis_rate",
		func(client int) (bool, error) {
			for i, limit := range limits {
				res, err := limiter.Allow(context.Background(), keys[i][client], limit)
				if err != nil || res.Allowed == 0 {
					return false, err
				}
			}
			return true, nil
		},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for i, limit := range limits {
				res, err := limiter.Allow(r.Context(), layers[i].name+":"+layers[i].keyOf(r), limit)
				if err != nil {
					http.Error(w, "internal error", http.StatusInternalServerError)
					return
				}
				w.Header().Set("X-RateLimit-Limit", strconv.Itoa(limit.Rate))
				w.Header().Set("X-RateLimit-Remaining", strconv.Itoa(res.Remaining))
				if res.Allowed == 0 {
					w.Header().Set("Retry-After", strconv.Itoa(int(res.RetryAfter/time.Second)))
					http.Error(w, "too many requests", http.StatusTooManyRequests)
					return
				}
			}
			admitted(w, r)
		}),
	}
}

// rueidisWindow is a fixed window from the first request, with the commands of
// rueidis' own limiter, whose module is not for everybody to have.
var rueidisWindow = rueidis.NewLuaScript(`
local expires = tonumber(redis.call("get", KEYS[1] .. ":ex"))
if not expires or expires < tonumber(ARGV[3]) then
  redis.call("set", KEYS[1], 0, "pxat", ARGV[2] + 1000)
  redis.call("set", KEYS[1] .. ":ex", ARGV[2], "pxat", ARGV[2] + 1000)
  expires = tonumber(ARGV[2])
end
return {redis.call("incrby", KEYS[1], ARGV[1]), expires}`)

// rueidisPeer is a script for each layer, through rueidis' automatic pipelining. It has
// no middleware; its handler is the least that one would be.
func rueidisPeer(tb testing.TB, addr string, layers []layer) peer {
	tb.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ConnWriteTimeout: patience})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(client.Close)
	take := func(ctx context.Context, l layer, key string) (left int64, reset time.Time, err error) {
		now := time.Now()
		args := []string{"1", strconv.FormatInt(now.Add(l.limit.Period).UnixMilli(), 10), strconv.FormatInt(now.UnixMilli(), 10)}
		reply, err := rueidisWindow.Exec(ctx, client, []string{"rueidis:" + l.name + ":" + key}, args).AsIntSlice()
		if err != nil {
			return 0, now, err
		}
		return l.limit.Quota() - reply[0], time.UnixMilli(reply[1]), nil
	}
	return peer{"rueidis",
		func(client int) (bool, error) {
			for _, l := range layers {
				if left, _, err := take(context.Background(), l, l.key(client)); err != nil || left < 0 {
					return false, err
				}
			}
			return true, nil
		},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, l := range layers {
				left, reset, err := take(r.Context(), l, l.keyOf(r))
				if err != nil {
					http.Error(w, "internal error", http.StatusInternalServerError)
					return
				}
				w.Header().Set("X-RateLimit-Limit", strconv.FormatInt(l.limit.Quota(), 10))
				w.Header().Set("X-RateLimit-Remaining", strconv.FormatInt(max(left, 0), 10))
				if left < 0 {
					w.Header().Set("Retry-After", strconv.Itoa(int(time.Until(reset)/time.Second)))
					http.Error(w, "too many requests", http.StatusTooManyRequests)
					return
				}
			}
			admitted(w, r)
		}),
	}
}

// varyBy is a layer's key for throttled.
type varyBy func(*http.Request) string

func (v varyBy) Key(r *http.Request) string { return v(r) }

func throttledPeer(tb testing.TB, layers []layer, store func(layer) throttled.GCRAStoreCtx) peer {
	tb.Helper()
	limiters := make([]*throttled.GCRARateLimiterCtx, len(layers))
	var h http.Handler = admitted
	for i := len(layers) - 1; i >= 0; i-- {
		l := layers[i]
		var err error
		limiters[i], err = throttled.NewGCRARateLimiterCtx(store(l), throttled.RateQuota{
			MaxRate: throttled.PerDuration(int(l.limit.Rate), l.limit.Period), MaxBurst: int(l.limit.Quota()) - 1,
		})
		if err != nil {
			tb.Fatal(err)
		}
		h = (&throttled.HTTPRateLimiterCtx{RateLimiter: limiters[i], VaryBy: varyBy(l.keyOf)}).RateLimit(h)
	}
	decide := func(client int) (bool, error) {
		for i, limiter := range limiters {
			limited, _, err := limiter.RateLimitCtx(context.Background(), layers[i].key(client), 1)
			if err != nil || limited {
				return false, err
			}
		}
		return true, nil
	}
	return peer{"throttled", decide, h}
}

// ululePeer counts in fixed windows, whatever the layer's algorithm.
func ululePeer(layers []layer, store func(layer) ulule.Store) peer {
	limiters := make([]*ulule.Limiter, len(layers))
	var h http.Handler = admitted
	for i := len(layers) - 1; i >= 0; i-- {
		l := layers[i]
		limiters[i] = ulule.New(store(l), ulule.Rate{Period: l.limit.Period, Limit: l.limit.Quota()})
		h = ululehttp.NewMiddleware(limiters[i], ululehttp.WithKeyGetter(l.keyOf)).Handler(h)
	}
	decide := func(client int) (bool, error) {
		for i, limiter := range limiters {
			c, err := limiter.Get(context.Background(), layers[i].key(client))
			if err != nil || c.Reached {
				return false, err
			}
		}
		return true, nil
	}
	return peer{"ulule", decide, h}
}

// httprateHandler is httprate without chi's middleware that its README puts in
// front, which finds out the address: here that costs less.
func httprateHandler(layers []layer) peer {
	var h http.Handler = admitted
	for i := len(layers) - 1; i >= 0; i-- {
		l := layers[i]
		h = httprate.LimitBy(int(l.limit.Quota()), l.limit.Period, func(r *http.Request) (string, error) {
			return httprate.CanonicalizeIP(l.keyOf(r)), nil
		})(h)
	}
	return peer{name: "httprate", handler: h}
}

// deciding is the subject that asks a peer for the decision alone.
func deciding(p peer, want bool) subject {
	return func() func(int) error {
		return func(client int) error {
			allowed, err := p.decide(client)
			if err == nil && allowed != want {
				err = fmt.Errorf("%s: allowed %t, want %t", p.name, allowed, want)
			}
			return err
		}
	}
}

// All are asked for the same: of ten requests, five fit, whoever counts.
func TestPeersHaveTheSameLimits(t *testing.T) {
	limit := algorithms.Limit{Rate: 5, Period: time.Hour}
	layers := layered(limit)
	for _, p := range append(redisPeers(t, start(t).theirs, layers), memoryPeers(t, layers)...) {
		decided, served := 0, 0
		for range 10 {
			c := newCaller()
			if c.call(p.handler, 1); c.status == http.StatusNoContent {
				served++
			}
			if p.decide == nil {
				continue
			}
			allowed, err := p.decide(2)
			if err != nil {
				t.Fatal(p.name, err)
			}
			if allowed {
				decided++
			}
		}
		if served != 5 || p.decide != nil && decided != 5 {
			t.Errorf("%s: of 10 requests each, the handler admitted %d and the decision %d, want 5", p.name, served, decided)
		}
	}
}
