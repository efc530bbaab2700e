package main

import (
	"slices"
	"sync"
)

// tables stand for two tables of a database.
type tables struct {
	mu        sync.Mutex
	plans     []plan
	customers map[string]customer // by API key; a database has their hashes
}

type plan struct {
	name                string
	perMinute, perMonth int
}

type customer struct{ id, plan string }

func (t *tables) allPlans() []plan {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.plans)
}

func (t *tables) customer(apiKey string) (c customer, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, ok = t.customers[apiKey]
	return c, ok
}

func exampleTables() *tables {
	return &tables{
		plans: []plan{{"free", 10, 1000}, {"pro", 100, 100_000}},
		customers: map[string]customer{
			"key-of-acme":   {"acme", "free"},
			"key-of-globex": {"globex", "pro"},
		},
	}
}
