package view

import (
	"fmt"
	"testing"
)

func TestStatusesOf(t *testing.T) {
	for want, statuses := range map[string][]int{
		"[]":                nil,
		"[401 403]":         {403, 401},
		"[401 402]":         {401, 402},
		"[200 400-402 599]": {599, 402, 401, 400, 200},
	} {
		if got := fmt.Sprint(StatusesOf(statuses)); got != want {
			t.Errorf("%d: %s, want %s", statuses, got, want)
		}
	}
}
