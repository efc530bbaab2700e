// Package accuracy measures how far each algorithm is from an exact limit: "at
// most R units in any span of length P". It writes the tables and the pictures
// of docs/algorithms.md, and its tests fail when they are no longer what is
// computed:
//
//	go test ./internal/accuracy -v -update
//
// What is measured is algorithms.Memory, in the fake time of testing/synctest,
// so every figure but those about Redis' CPU is the same on every machine. The
// conformance tests of package algorithms show that Redis decides the same.
//
// # Definitions
//
// A request counts when it is served: when it arrives or, in a leaky_bucket,
// after its Delay. Each algorithm is judged by what it has itself served. With
// served(t) for the units that it served in (t-P, t]:
//
//   - A false admit is a request of cost c that is served at s although
//     served(s) + c > R.
//   - A false denial is a request of cost c that is denied at t although
//     served(t) + c ≤ R.
//   - The overshoot is the most that served(t) ever is beyond R, in percent of R.
//   - The undershoot is the most that served(t) is below R at a false denial, in
//     percent of R.
//
// Both shares are of all requests. sliding_log has neither by construction,
// which the tests want to see.
package accuracy
