package transport

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// weight is how much of a batch a call takes up, in keys: one that is run by itself
// costs the server about twice as much.
func (c *Call) weight() int {
	if c.joins() {
		return len(c.Keys)
	}
	return 2 * len(c.Keys)
}

func (c *Call) joins() bool { return c.Joins && c.Script.joint != nil }

// fits reports whether a call differs from another one only in its keys and in what is its
// own. Mostly their arguments are the same slice.
func (c *Call) fits(other *Call) bool {
	return c.Script == other.Script && len(c.Keys) == len(other.Keys) && len(c.Args) == len(other.Args) &&
		(len(c.Args) > 0 && &c.Args[0] == &other.Args[0] || slices.Equal(c.Args, other.Args))
}

// join returns the calls to send for these: one in place of all that differ in
// their keys only, in their order.
func (t *Transport) join(calls []*Call) []*Call {
	if len(calls) == 1 || t.Sharded || t.apart.all() {
		return calls
	}
	sent := make([]*Call, 0, len(calls))
	for _, c := range calls {
		if !c.joins() || t.apart.has(c) {
			sent = append(sent, c)
			continue
		}
		i := slices.IndexFunc(sent, func(o *Call) bool { return o.members != nil && o.members[0].fits(c) })
		if i < 0 {
			i = len(sent)
			sent = append(sent, &Call{Script: c.Script.joint, members: make([]*Call, 0, len(calls)), err: c.err})
		}
		sent[i].members = append(sent[i].members, c)
	}
	for i, c := range sent {
		if len(c.members) == 1 {
			sent[i] = c.members[0]
		}
	}
	return sent
}

// part gives the members of a call what became of them.
func (t *Transport) part(c *Call) {
	text, err := "", c.err
	if err == nil {
		text, err = c.cmd.(textCmd).Result()
	}
	if err != nil {
		if Answered(err) && !begins(textOf(err), declines) { // maybe for what they have together
			t.apart.begin()
		}
		if notRunTogether(err) {
			err = errToSendAlone
		}
	}
	for _, m := range c.members {
		m.lines, m.err = "", err
		if err == nil {
			text = t.partOf(m, text)
		}
	}
}

// partOf gives a call its lines of a reply, and returns what is behind them.
func (t *Transport) partOf(c *Call, reply string) (rest string) {
	end := -1
	for range len(c.Keys) + 1 {
		if end == len(reply) {
			c.err = fmt.Errorf("%w: %.200q of several calls", ErrReply, reply)
			return ""
		}
		if i := strings.IndexByte(reply[end+1:], '\n'); i >= 0 {
			end += i + 1
		} else {
			end = len(reply)
		}
	}
	c.lines, rest = reply[:end], reply[min(end+1, len(reply)):]
	if why, failed := strings.CutPrefix(c.lines, "!"); failed {
		costly, text, _ := strings.Cut(strings.TrimRight(why, "\n"), "!")
		c.err = scriptError(text)
		for number := range strings.FieldsSeq(costly) {
			if i, err := strconv.Atoi(number); err == nil && i > 0 && i <= len(c.Keys) {
				t.apart.add(c.Keys[i-1].(string))
			}
		}
	}
	return rest
}

// A scriptError is the error of one call of several that ran as one.
type scriptError string

func (e scriptError) Error() string { return string(e) }

// RedisError implements [redis.Error]: it is an answer of the server.
func (scriptError) RedisError() {}

// notRunTogether reports that a server certainly ran none of several calls that it
// got as one, but may run them alone: it does not permit the joint script a
// command that only reads, or does not permit one of the keys, or has not all keys.
func notRunTogether(err error) bool {
	return redis.HasErrorPrefix(err, "ALONE") || redis.HasErrorPrefix(err, "CROSSSLOT") || redis.HasErrorPrefix(err, "NOPERM") && NotExecuted(err)
}

// errToSendAlone is the error of a call that was not run together with others, for
// as long as it is not sent alone.
var errToSendAlone = unsentError{fmt.Errorf("%w: no time left to send it alone", errBusy)}

// toSendAgain reports that a server certainly did not run a call, for a reason that
// sending it otherwise removes.
func toSendAgain(c *Call) bool {
	return c.err != nil && (errors.Is(c.err, errToSendAlone) || unknownScript(c.err))
}

const (
	// maxApart is how many keys are remembered.
	maxApart = 1024
	// apartFor is how long a key is apart, or all are.
	apartFor = time.Minute
)

// apart knows the calls that are sent by themselves though they could join others.
type apart struct {
	until atomic.Int64 // all, by Unix time in ns: the server does not run joint scripts

	n    atomic.Int64 // of keys, so that usually nobody takes mu
	mu   sync.Mutex
	keys map[string]time.Time // until when; with values that cost all who join them time
	over time.Time            // when no key counts any more
}

// begin sends all calls by themselves for a while.
func (a *apart) begin() { a.until.Store(time.Now().Add(apartFor).UnixNano()) }

func (a *apart) all() bool {
	until := a.until.Load()
	return until != 0 && time.Now().UnixNano() < until
}

// has reports whether a call has such a key.
func (a *apart) has(c *Call) bool {
	if a.n.Load() == 0 {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if !now.Before(a.over) {
		clear(a.keys)
		a.n.Store(0)
		return false
	}
	return slices.ContainsFunc(c.Keys, func(key any) bool { return now.Before(a.keys[key.(string)]) })
}

// add keeps the calls with a key apart.
func (a *apart) add(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.keys[key]; !known && len(a.keys) >= maxApart {
		for other := range a.keys { // any
			delete(a.keys, other)
			break
		}
	}
	if a.keys == nil {
		a.keys = map[string]time.Time{}
	}
	a.over = time.Now().Add(apartFor)
	a.keys[key] = a.over
	a.n.Store(int64(len(a.keys)))
}
