package rulefile

import (
	"context"
	"crypto/sha256"
	_ "embed" // the script
	"encoding/hex"
	"fmt"
	"io/fs"
	"math"
	"regexp"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
)

// Fleet is a document in Redis, for all instances of a namespace. It is a [Source]
// that can be written. The document is a string at the key "namespace:rules". Its
// first line is a comment with its version.
//
// A publisher reads the version and passes it to Publish. If two publishers have read
// the same version, one of them gets [ErrConflict], so no publisher overwrites rules
// that it has not read. Programs that only read need no permission to write the key.
//
// The key has no TTL. If Redis loses the key or is unreachable, running instances
// keep their rules. Starting instances take the rules that their program has, such as
// those of a file.
type Fleet struct {
	Client    algorithms.Client // required
	Namespace string            // as in [algorithms.Redis]; required
}

//go:embed fleet.lua
var publishScript string

// maxHead is above the length of a document's first line.
const maxHead = 160

var heads = regexp.MustCompile(`^# ratelimit rules, version ([1-9][0-9]{0,18}), sha256 ([0-9a-f]{64})\n`)

// key is the key of the document.
func (f Fleet) key() string { return f.Namespace + ":rules" }

// Read implements [Source]. The error wraps fs.ErrNotExist if no document was
// published. A text that was changed after it was published is an error.
func (f Fleet) Read(ctx context.Context) ([]byte, error) {
	value, err := f.get(ctx, maxHead+maxSize)
	if err != nil {
		return nil, err
	}
	if value == "" {
		return nil, fmt.Errorf("%s: nothing is published: %w", f.key(), fs.ErrNotExist)
	}
	head := heads.FindStringSubmatch(value)
	if head == nil {
		return nil, f.foreign()
	}
	text := value[len(head[0]):]
	if digest(text) != head[2] {
		return nil, problem(fmt.Sprintf("%s: version %s is not as it was published: it was changed in Redis; publish it again", f.key(), head[1]))
	}
	return []byte(text), nil
}

// Version returns the version of the document; 0 if there is none.
func (f Fleet) Version(ctx context.Context) (int64, error) {
	value, err := f.get(ctx, maxHead)
	if err != nil || value == "" {
		return 0, err
	}
	head := heads.FindStringSubmatch(value)
	if head == nil {
		return 0, f.foreign()
	}
	version, err := strconv.ParseInt(head[1], 10, 64)
	if err != nil {
		return 0, f.foreign()
	}
	return version, nil
}

// Publish replaces version old of the document by text, and returns the new version.
// old is 0 if there is no document. The error is [ErrConflict] if the document has
// another version. Publish does not parse the text: parse it before, with the Loader
// of the programs that will read it.
func (f Fleet) Publish(ctx context.Context, text []byte, old int64) (int64, error) {
	switch {
	case len(text) > maxSize:
		return 0, fmt.Errorf("rulefile: %s: the document is larger than %d bytes, which no rule file needs to be", f.key(), maxSize)
	case len(text) == 0:
		return 0, fmt.Errorf("rulefile: %s: the document is empty", f.key())
	case old < 0 || old == math.MaxInt64:
		return 0, fmt.Errorf("rulefile: %s: no document has version %d; pass what Version returns", f.key(), old)
	}
	head := fmt.Sprintf("# ratelimit rules, version %d, sha256 %s\n", old+1, digest(string(text)))
	done, err := do[int64](ctx, f, redis.NewCmd(ctx, "eval", publishScript, 1, f.key(), strconv.FormatInt(old, 10), head, head+string(text)))
	switch {
	case err != nil:
		return 0, fmt.Errorf("rulefile: %s: %w", f.key(), err)
	case done == 0:
		return 0, ErrConflict
	case done < 0:
		return 0, fmt.Errorf("rulefile: %w", f.foreign())
	}
	return old + 1, nil
}

// get returns at most so many bytes of the document.
func (f Fleet) get(ctx context.Context, most int) (string, error) {
	value, err := do[string](ctx, f, redis.NewCmd(ctx, "getrange", f.key(), 0, most-1))
	if err != nil {
		return "", fmt.Errorf("%s: %w", f.key(), err)
	}
	return value, nil
}

// do sends a command and returns its result.
func do[T any](ctx context.Context, f Fleet, cmd *redis.Cmd) (result T, err error) {
	if err := (&algorithms.Redis{Client: f.Client, Namespace: f.Namespace}).Validate(); err != nil {
		return result, err
	}
	if err := f.Client.Process(ctx, cmd); err != nil {
		return result, err
	}
	value, err := cmd.Result()
	if err != nil {
		return result, err
	}
	result, ok := value.(T)
	if !ok {
		return result, fmt.Errorf("unexpected reply %T", value)
	}
	return result, nil
}

func (f Fleet) foreign() error {
	return problem(f.key() + " was not written by Fleet.Publish: remove the key, and publish the rules")
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
