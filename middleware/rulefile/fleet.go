package rulefile

import (
	"context"
	"crypto/sha256"
	_ "embed" // the script
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
)

// Fleet is a document in Redis, for all instances of a namespace. It is a [Source]
// that can be written. The document is a string at the key "namespace:rules". Its
// first line is a comment with the version, the time, the publisher and a note. The
// last 20 replaced versions are a list at "namespace:rules:history{namespace:rules}".
//
// A publisher reads the document and passes its version to Publish. If two publishers
// have read the same version, one of them gets [ErrConflict], so no publisher
// overwrites rules that it has not read. Whatever the client's options are, the keys are
// read where they are written, and not on a replica.
//
// If the document was deleted, or replaced by something that Publish has not written, the
// next version is two above the highest in the history, because the version in between
// was that of the lost document. After a second loss, a number may be used again.
//
// The keys have no TTL. If Redis loses them or is unreachable, running instances
// keep their rules. In starting instances Load returns an error: start them with other
// rules, such as those of a file.
type Fleet struct {
	Client    algorithms.Client // required
	Namespace string            // as in [algorithms.Redis]; required
}

// A Document is a published version of the rules.
type Document struct {
	Version int64     // from 1
	At      time.Time // when it was published, by the publisher's clock
	By      string    // the publisher: at most 64 bytes, without ':'
	Note    string    // why it was published: at most 200 bytes
	Text    []byte    // at most 1 MiB
}

//go:embed fleet.lua
var publishScript string

// readScript reads a part of a key on its master: clients and proxies may send commands
// that only read to a replica, which may be late.
const readScript = "return redis.pcall(ARGV[1], KEYS[1], ARGV[2], ARGV[3])"

const (
	maxHead    = 420 // above the length of a document's first line
	maxBy      = 64
	maxNote    = 200
	maxHistory = 20
	maxVersion = 1e18 - 1 // what versions can read
	foreign    = -1       // the Version of what Publish has not written
)

var (
	versions = regexp.MustCompile(`^# ratelimit rules, version ([1-9][0-9]{0,17}), `) // as in fleet.lua
	heads    = regexp.MustCompile(versions.String() + `sha256 ([0-9a-f]{64}), at ([0-9TZ:-]{20}), by ([^:\n]*): ([^\n]*)\n`)
)

func (f Fleet) key() string { return f.Namespace + ":rules" }

// historyKey is in the document's slot of a cluster.
func (f Fleet) historyKey() string { return f.key() + ":history{" + f.key() + "}" }

// Read implements [Source]. It returns the Text of Document.
func (f Fleet) Read(ctx context.Context) ([]byte, error) {
	d, err := f.Document(ctx)
	return d.Text, err
}

// Document returns the document in force. The error wraps fs.ErrNotExist if there is
// none. A text that was changed after it was published is an error, and so is a text that
// Publish has not written. In both cases the Version is set, so that a publisher can
// replace the document. It is -1 for a text that Publish has not written.
func (f Fleet) Document(ctx context.Context) (Document, error) {
	value, err := do[string](ctx, f, redis.NewCmd(ctx, "eval", readScript, 1, f.key(), "getrange", 0, maxHead+maxSize-1))
	switch {
	case err != nil:
		return Document{}, fmt.Errorf("%s: %w", f.key(), err)
	case value == "":
		return Document{}, fmt.Errorf("%s: nothing is published yet: publish a document first: %w", f.key(), fs.ErrNotExist)
	}
	d, ok := documentOf(value)
	switch {
	case d.Version == foreign:
		return d, problem(f.key() + " was not written by Fleet.Publish: publish the rules")
	case !ok:
		return d, problem(fmt.Sprintf("%s: version %d is not as it was published: it was changed in Redis; publish it again", f.key(), d.Version))
	}
	return d, nil
}

// History returns the versions that were replaced, the newest first. It has at most 20,
// and none that was changed after it was published.
func (f Fleet) History(ctx context.Context) ([]Document, error) {
	all, _, err := f.past(ctx)
	return all, err
}

// past returns the versions that were replaced, and the highest of all their numbers.
func (f Fleet) past(ctx context.Context) (all []Document, highest int64, err error) {
	values, err := do[[]any](ctx, f, redis.NewCmd(ctx, "eval", readScript, 1, f.historyKey(), "lrange", 0, -1))
	if err != nil {
		return nil, 0, fmt.Errorf("rulefile: %s: %w", f.historyKey(), err)
	}
	for _, value := range slices.Backward(values) {
		text, _ := value.(string)
		d, ok := documentOf(text)
		if highest = max(highest, d.Version); ok {
			all = append(all, d)
		}
	}
	return all, highest, nil
}

// documentOf reads a document as it is in Redis. Its Version is foreign if it was not
// written by Publish. ok is false if it was changed.
func documentOf(value string) (d Document, ok bool) {
	version := versions.FindStringSubmatch(value)
	if version == nil {
		return Document{Version: foreign}, false
	}
	d.Version, _ = strconv.ParseInt(version[1], 10, 64) // it is a number
	head := heads.FindStringSubmatch(value)
	if head == nil {
		return d, false
	}
	text := value[len(head[0]):]
	if digest(text) != head[2] {
		return d, false
	}
	d.At, _ = time.Parse(time.RFC3339, head[3])
	d.By, d.Note, d.Text = head[4], head[5], []byte(text)
	return d, true
}

// Publish replaces version old of the document by d, and returns the new version. old is 0
// if there is no document, and -1 if Publish has not written it. The error is [ErrConflict]
// if the document in force has another version. d.Version and d.At are ignored. d.Text is
// not parsed: parse it before, with the Loader of the programs that will read it.
func (f Fleet) Publish(ctx context.Context, d Document, old int64) (int64, error) {
	if err := d.validate(); err != nil {
		return 0, fmt.Errorf("rulefile: %s: %w", f.key(), err)
	}
	next := old + 1
	if old == 0 || old == foreign {
		_, highest, err := f.past(ctx)
		if err != nil {
			return 0, err
		}
		if next = 1; highest > 0 || old == foreign {
			next = highest + 2 // the lost document was highest+1, which may still be in force
		}
	}
	if next < 1 || next > maxVersion {
		return 0, fmt.Errorf("rulefile: %s: no document has version %d; pass the Version that Document returns", f.key(), old)
	}
	head := fmt.Sprintf("# ratelimit rules, version %d, sha256 %s, ", next, digest(string(d.Text)))
	text := fmt.Sprintf("%sat %s, by %s: %s\n%s", head, time.Now().UTC().Format(time.RFC3339), d.By, d.Note, d.Text)
	done, err := do[int64](ctx, f, redis.NewCmd(ctx, "eval", publishScript, 2, f.key(), f.historyKey(),
		strconv.FormatInt(old, 10), head, text, maxHead+maxSize-1, maxHistory))
	switch {
	case err != nil:
		return 0, fmt.Errorf("rulefile: %s: %w", f.key(), err)
	case done == 0:
		return 0, ErrConflict
	}
	return next, nil
}

// validate reports what Publish cannot write.
func (d *Document) validate() error {
	invisible := func(r rune) bool { return !unicode.IsPrint(r) }
	switch {
	case len(d.Text) > maxSize:
		return fmt.Errorf("the document is larger than %d bytes, which no rule file needs to be", maxSize)
	case len(d.Text) == 0:
		return errors.New("the document is empty")
	case len(d.By) > maxBy || len(d.Note) > maxNote:
		return fmt.Errorf("the publisher has %d bytes and the note %d; write at most %d and %d", len(d.By), len(d.Note), maxBy, maxNote)
	case strings.ContainsFunc(d.By+d.Note, invisible) || !utf8.ValidString(d.By+d.Note):
		return errors.New("the publisher or the note has a line break or an invisible character; write plain text on one line")
	case strings.Contains(d.By, ":"):
		return fmt.Errorf("the publisher %q has a colon; leave it out", d.By)
	}
	return nil
}

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

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
