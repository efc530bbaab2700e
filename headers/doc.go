// Package headers tells clients what a rate limiter decided: by response headers, and by
// the response to a denied request. For clients it has [RetryAfter], which reads these
// headers, and [Transport], with which a Go client obeys them.
//
// Read [Writer], [Deny] and [Transport] first. A Writer sets headers on a response, Deny
// answers a denied request, and Transport is for clients.
//
// Most clients understand [XRateLimit]. [IETFDraft11] is the current draft of the IETF.
// [All] combines both, or other writers. If the fields are already set, by another limiter
// in front or by an upstream server behind a reverse proxy, the writers merge: the tighter
// values stay, and no field is sent twice.
package headers

// # How it works
//
// A writer is a function of a decision and never wraps the response. So streaming,
// flushing and hijacking work as without the middleware, and a handler can set fields of
// its own. A writer merges with what is already set: the tighter values stay, in one line
// of each field. Writers and the client read structured fields with httpsfv, and share one
// reader of all other values. Package field has the names of the fields.
//
// Package hidden removes hidden rules before a writer, Deny and Config.Denied get the
// decision. Only a denial by a hidden rule leaves a result. It has no check and no counts,
// but its RetryAfter and an Err. The Err makes Tightest and all writers pass over it, also
// those of users.
//
// A new header takes a function in a file of its own. Put the name of a new field into
// package field, so that middleware.ModifyResponse moves it and the client reads it. Put
// the writer into the lists in golden_test.go, hidden_test.go and chain_test.go. Then go
// test ./headers -run Golden -update writes what it sends: read that before you keep it.
