package rulefile_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

// Rules come from a file, and follow it while the service runs. A bad file is
// fatal at start; later the rules in force stay, and the log says why.
func ExampleLoader() {
	userID := func(context.Context) (string, bool) { return "", false } // the program's own
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	loader := &rulefile.Loader{
		Source: rulefile.File("rules.yaml"),
		Keys:   map[string]keyfunc.Key{"user": keyfunc.Context(userID)},
		Tiers:  []string{"pro", "enterprise"},
	}
	rules, err := loader.Load(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	limit, err := ratelimit.New(ratelimit.Config{Limiter: new(algorithms.Memory), Rules: rules})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	go loader.Watch(ctx, limit) // ends with ctx

	server := &http.Server{Handler: limit.Handler(http.DefaultServeMux), ReadTimeout: 5 * time.Second}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
}

// Every mistake has its place, and says what to write.
func ExampleLoader_Parse() {
	const text = `version: 1
rules:
  - name: login
    match: [POST /auth/login]
    key: ip
    limit: 5-S
    shadow: 90%
`
	_, err := new(rulefile.Loader).Parse("rules.yaml", []byte(text))
	fmt.Println(err)
	// Output:
	// rules.yaml:6:12: rules[0].limit: limit "5-S": no period; write it as "100/1m", "10/s burst 20" or "5/1m fixed_window"
	// rules.yaml:7:13: rules[0].shadow: must be true or false, without quotes, got "90%"
}

// All instances follow one document in Redis. Of two publishers who have read the
// same version, one gets ErrConflict.
func ExampleFleet() {
	client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: "localhost:6379"}))
	defer client.Close()
	publish := func(ctx context.Context, loader *rulefile.Loader, text []byte) error {
		if _, err := loader.Parse("rules.yaml", text); err != nil {
			return err // Publish does not look into the text
		}
		fleet := rulefile.Fleet{Client: client, Namespace: "shop"}
		current, err := fleet.Document(ctx)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		_, err = fleet.Publish(ctx, rulefile.Document{By: "alice", Note: "tighter login", Text: text}, current.Version)
		return err
	}
	_ = publish
}
