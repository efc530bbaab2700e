package monitor

// # How it works
//
// # Circuits
//
// A circuit is closed, watched or open. While it is closed, a decision costs it one atomic
// read. The first failure begins a window of a second in which every outcome is counted.
// Outcomes of decisions that were sent before the circuit last opened or closed are not
// counted.
//
// An error opens a circuit by itself only if the server alone can be to blame: refused,
// reset, OOM, READONLY. Refused credentials also open it, because every decision would dial
// otherwise.
//
// An answer in any other words may concern one key, and who can write one key must not be
// able to stop the limiter. No list of words is complete: proxies and services have their
// own. So several such answers in a row only lead to a probe for a key that no client has,
// by the way of decisions. If that fails, too, the circuit opens.
//
// # The witness
//
// Late answers do not prove an outage. A client with a thousand connections can make this
// process so slow that it reads good answers too late. So late decisions only call the
// witness. It sends a probe on a connection that was opened before and that no other code
// uses, and waits for four fifths of the budget. Then it looks once more for an unread
// answer, because in a busy process timers fire before the network is read. A timeout that
// is noticed more than 2 ms late proves nothing. The probe is then repeated, up to ten
// times. The probe is the script and not PING: a proxy answers PING for a dead server, and
// a server without memory answers PING.
//
// The command OUTAGES=all go test ./internal/outages -run 'TestAStall|TestAFlood' -v shows
// both sides.
//
// # Probes
//
// Each open circuit has one goroutine that sends a probe about every 200 ms. A probe
// charges a key of its own, because a replica and a server without memory still answer
// reads. One probe within half of the budget closes the circuit, or five slower ones in a
// row. Each opening within ten seconds of the last closing doubles these numbers, up to
// eight times. A node without slots has nothing to probe: its circuit closes, and its
// successor decides at once.
//
// If a probe is answered with an error, it is repeated on a new connection. If that is
// well, the address has come to mean another server, or permissions have changed. Then the
// idle connections of decisions are closed: go-redis would keep them.
