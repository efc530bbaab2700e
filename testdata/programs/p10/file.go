// 10. Rules from a YAML file with reload, names of the program's own, and fleet-wide rules in Redis.
package p10

import (
	"context"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

func start(ctx context.Context, client *redis.Client, guard *failmode.Guard, trusted keyfunc.Proxies, mux *http.ServeMux,
	tenant func(context.Context) (string, bool), plan func(*http.Request) string,
) (*ratelimit.Middleware, error) {
	file := &rulefile.Loader{
		Source: rulefile.File("rules.yaml"),
		Keys: map[string]keyfunc.Key{
			"ip": trusted.IP(), "tenant": keyfunc.Optional(keyfunc.Context(tenant)), "route": keyfunc.Mux(mux),
		},
		Tiers: []string{"pro", "enterprise", "internal"},
		Edit: func(rules []ratelimit.Rule) ([]ratelimit.Rule, error) { // what no file can say
			return append(rules, ratelimit.Rule{Name: "all", Key: keyfunc.Everyone, Limit: algorithms.PerSecond(5000), Hidden: true}), nil
		},
	}
	fleet := *file
	fleet.Source = rulefile.Fleet{Client: client, Namespace: "shop"}

	rules, err := fleet.Load(ctx)
	if err != nil { // not published, or Redis is down
		log.Print("rules of the fleet: ", err)
		if rules, err = file.Load(ctx); err != nil {
			return nil, err // rules.yaml:5:12: rules[0].limit: …
		}
	}
	limit, err := ratelimit.New(ratelimit.Config{Limiter: guard, TierFor: plan, Rules: rules})
	if err != nil {
		return nil, err
	}
	go fleet.Watch(ctx, limit) // ends with ctx

	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	go func() {
		for range hup {
			_ = fleet.Reload(ctx, limit) // logged and counted; the old rules stay
		}
	}()
	return limit, nil
}

func publish(ctx context.Context, client *redis.Client, loader *rulefile.Loader, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if _, err := loader.Parse(path, text); err != nil {
		return err
	}
	fleet := rulefile.Fleet{Client: client, Namespace: "shop"}
	version, err := fleet.Version(ctx)
	if err != nil {
		return err
	}
	_, err = fleet.Publish(ctx, text, version) // rulefile.ErrConflict: somebody else was first
	return err
}
