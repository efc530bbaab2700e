// Package accuracy measures how far each algorithm is from an exact limit: "at
// most R units in any span of length P". It writes the tables and the pictures
// of docs/algorithms.md, and its tests fail when they are no longer what is
// computed:
//
//	make accuracy
//
// Package simulate runs algorithms.Memory in virtual time, so every figure but
// those about Redis' CPU is the same on every machine, and defines false admits
// and false denials. Here their shares are of all requests, and
//
//   - the overshoot is the most that a window is ever beyond R, in percent of R;
//   - the undershoot is the most that it is below R at a false denial, in
//     percent of R.
package accuracy
