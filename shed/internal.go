package shed

import (
	"net/http"

	"github.com/seed75154129/ratelimit/internal/inside"
)

// Internal is for the packages of this module, and no part of the API.
var Internal inside.Door[opened]

// opened is what package middleware needs of a Shedder.
type opened struct{}

// Validate reports what is wrong with the fields.
func (opened) Validate(s *Shedder) error { return s.validate() }

// Enter waits for a place. It returns false if the request is shed: answer it by Refuse.
func (opened) Enter(s *Shedder, r *http.Request) (*slot, bool) { return s.enter(r) }

// Refuse answers a request that is shed.
func (opened) Refuse(s *Shedder, w http.ResponseWriter, r *http.Request) { s.refuse(w, r) }
