package algorithms

import (
	"context"
	"crypto/rand"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/seed75154129/ratelimit/internal/script"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// Beat says that the instance id uses the namespace, and returns how many
// instances do: those whose last beat was less than their lease ago. A lease of
// 0 takes the instance out; others are rounded up to the millisecond. The key is
// "namespace:instances".
//
// All instances should use the same lease: a shorter one cuts off what longer
// ones have left.
func (s store) Beat(ctx context.Context, id string, lease time.Duration) (instances int, err error) {
	ms := (max(lease, 0) + time.Millisecond - 1).Milliseconds()
	c := &transport.Call{Script: script.Instances, Keys: []any{s.Namespace + ":instances"}, Args: []any{id, ms}}
	reply, err := s.Send(s.Transport.Within(ctx), c) // one key goes through every client alike
	if err == nil && len(reply) != 1 {
		err = fmt.Errorf("%w: %d numbers, want 1", transport.ErrReply, len(reply))
	}
	if err != nil {
		return 0, redisError(err)
	}
	return int(reply[0]), nil
}

// An instance is this process, as far as it uses one namespace of one server.
type instance struct {
	server    string // what the client counts on; "" if only the client is known
	client    any    // where server is ""
	namespace string
}

// instances are those that this process is at present.
var instances struct {
	mu     sync.Mutex
	joined map[instance]*member // guarded by mu
}

// A member is an instance's id and how many users share it.
type member struct {
	id    string
	users int
}

// Join counts one more user of r's namespace and server in this process, and
// returns the id of the instance that all of them are, and how many others
// there are. Leave undoes it.
func (s store) Join() (id string, others int) {
	key := s.instance()
	instances.mu.Lock()
	defer instances.mu.Unlock()
	m := instances.joined[key]
	if m == nil {
		if instances.joined == nil {
			instances.joined = map[instance]*member{}
		}
		m = &member{id: rand.Text()}
		instances.joined[key] = m
	}
	m.users++
	return m.id, m.users - 1
}

// Leave undoes one join, and reports whether it was the last.
func (s store) Leave() (last bool) {
	key := s.instance()
	instances.mu.Lock()
	defer instances.mu.Unlock()
	m := instances.joined[key]
	if m == nil {
		return false
	}
	if m.users--; m.users > 0 {
		return false
	}
	delete(instances.joined, key)
	return true
}

// instance recognises two values of Redis that count in the same place: by the
// server's address, where that says where the client connects to, or by the
// client.
func (r *Redis) instance() instance {
	t, _ := r.ready()
	if t.Server() != "" {
		return instance{server: t.Server(), namespace: r.Namespace}
	}
	if reflect.ValueOf(r.Client).Comparable() {
		return instance{client: r.Client, namespace: r.Namespace}
	}
	return instance{client: r, namespace: r.Namespace}
}
