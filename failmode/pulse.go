package failmode

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

const (
	beatEvery = 5 * time.Second
	beatLease = 3 * beatEvery // a process that was not heard of for so long is gone
)

// A beater counts the processes that use it.
type beater interface {
	Beat(ctx context.Context, id string, lease time.Duration) (instances int, err error)
}

// A pulse counts the processes that share a limit through a heartbeat. It beats
// while there are requests, at most every beatEvery, in a goroutine that ends
// with the beat: a process without requests needs no share.
type pulse struct {
	store  beater // nil where there is none
	id     string
	logger *slog.Logger
	start  time.Time
	next   atomic.Int64 // when the next beat is due, since start
	count  atomic.Int64 // of the last beat that was believed

	mu    sync.Mutex // with a budget above beatEvery beats may overlap
	fewer bool       // the last beat counted fewer

	beats  background
	failed sync.Once // to log
}

func (p *pulse) begin(next algorithms.Limiter, logger *slog.Logger) {
	p.store, _ = next.(beater)
	p.id, p.logger, p.start = rand.Text(), logger, time.Now()
}

// tick beats if it is time to. It does not wait.
func (p *pulse) tick(ctx context.Context) {
	if p.store == nil {
		return
	}
	now, next := int64(time.Since(p.start)), p.next.Load()
	if now < next || !p.next.CompareAndSwap(next, now+int64(beatEvery)) {
		return
	}
	ctx = context.WithoutCancel(ctx)
	p.beats.begin(func() { p.beat(ctx) })
}

func (p *pulse) beat(ctx context.Context) {
	instances, err := p.store.Beat(ctx, p.id, beatLease)
	switch class := algorithms.ClassOf(err); {
	case class == "":
		p.counted(int64(instances))
	case class == algorithms.ClassRefused && strings.Contains(err.Error(), "NOPERM"), class == algorithms.ClassMisused:
		p.failed.Do(func() {
			p.logger.Warn("ratelimit: cannot count the processes that share the limits; set Instances, "+
				"or permit the heartbeat (ZADD, ZREM, ZREMRANGEBYSCORE, ZCARD)", "error", err)
		})
	}
}

// counted believes in fewer processes only the second time: after Redis was away
// the first beats find nobody else.
func (p *pulse) counted(instances int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if fewer := instances < p.count.Load(); fewer && !p.fewer {
		p.fewer = true
		return
	}
	p.fewer = false
	p.count.Store(instances)
}

// end waits for the last beat and takes the process out of the count.
func (p *pulse) end() {
	if first := p.beats.end(); first && p.store != nil && p.count.Load() > 0 {
		_, _ = p.store.Beat(context.Background(), p.id, 0) // its lease ends soon anyway
	}
}

// Processes is how many processes share the limits, as far as is known: see
// Instances.
func (f *Fallback) Processes() int {
	return int(max(int64(f.Instances), f.pulse.count.Load(), 1))
}
