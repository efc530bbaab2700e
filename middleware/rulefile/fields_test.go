package rulefile_test

import (
	"slices"
	"testing"
)

// statuses are those from and to, without some.
func statuses(from, to int, but ...int) (all []int) {
	for status := from; status <= to; status++ {
		if !slices.Contains(but, status) {
			all = append(all, status)
		}
	}
	return all
}

func TestChargeOn(t *testing.T) {
	for text, want := range map[string][]int{
		`[401, 403]`:               {401, 403},
		`["401"]`:                  {401},
		`[401, 5xx]`:               append([]int{401}, statuses(500, 599)...),
		`[401, 400-402]`:           {401, 400, 402},
		`[4xx-5xx]`:                statuses(400, 599),
		`[4xx, "!404", "!429"]`:    statuses(400, 499, 404, 429),
		`["!404", 4xx]`:            statuses(400, 499, 404),
		`["!304"]`:                 statuses(200, 599, 304),
		`["!5xx", "!304", "!2xx"]`: statuses(300, 499, 304),
		`["!500-503"]`:             statuses(200, 599, 500, 501, 502, 503),
	} {
		rules, err := loader().Parse("f", []byte("{version: 1, rules: [{name: r, key: ip, limit: 5000/1m, charge_on: "+text+"}]}"))
		if err != nil || !slices.Equal(rules[0].ChargeOn, want) {
			t.Errorf("%s: %v, %v; want %d", text, rules, err, want)
		}
	}
}
