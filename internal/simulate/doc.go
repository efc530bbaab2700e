// Package simulate sends traffic to the algorithms in virtual time, and judges
// what they made of it against an exact limit: "at most R units in any span of
// length P". It is what docs/algorithms.md is measured with (tools/accuracy)
// and what ratelimit lab shows.
//
// What runs is algorithms.Memory. TestHistories of package algorithms shows that
// Redis decides the same.
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
//   - The worst window is the most that served(t) ever is.
//
// sliding_log has neither false admits nor false denials by construction, which
// the tests want to see.
package simulate
