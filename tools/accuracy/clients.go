package accuracy

import "github.com/seed75154129/ratelimit/internal/simulate"

// A verdict is about clients instead of requests, as Cloudflare's study of 2017
// reports: a client is over the limit if what it sends in some span of a period
// is, served or not.
type verdict struct {
	requests, clients int
	over              int // clients over the limit
	wronglyDenied     int // clients that were denied though they are not over
	wronglyFree       int // clients over the limit that never were denied
	wrong             int // requests: denials of the former, those beyond the limit of the latter
}

func judgeClients(requests []simulate.Request, outcomes []simulate.Outcome, rate int64) verdict {
	type client struct{ denied, beyond int }
	sent, clients := make(simulate.Logs), make(map[int]client)
	for i, q := range requests {
		log, c := sent.Of(q.Client), clients[q.Client]
		log.Add(q.At, q.Cost)
		if log.Units(q.At, period) > rate {
			c.beyond++
		}
		if !outcomes[i].Allowed {
			c.denied++
		}
		clients[q.Client] = c
	}
	v := verdict{requests: len(requests), clients: len(clients)}
	for _, c := range clients {
		switch {
		case c.beyond == 0 && c.denied > 0:
			v.wronglyDenied++
			v.wrong += c.denied
		case c.beyond > 0 && c.denied == 0:
			v.wronglyFree++
			v.wrong += c.beyond
		}
		if c.beyond > 0 {
			v.over++
		}
	}
	return v
}
