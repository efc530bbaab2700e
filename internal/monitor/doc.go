package monitor

// # How it works
//
// A failed decision does not show who is at fault: the server, this process or the key. A
// client with a thousand connections can make a process so slow that it reads good answers
// too late, and who can write one key can make its decisions fail. So a failure only wakes
// the monitor: one error, in whatever words, or five late decisions in a row. It probes the
// server, once at a time and at most every 200 ms.
//
// A probe is a real decision on keys that no client has, by the scripts that batches use: a
// replica, a server without memory and a proxy whose server is dead answer PING. It charges
// a string, a set and a list, so it fails if any rule must.
//
// # Who asks
//
// A suspected server is asked on a connection that was opened before and that nothing else
// uses. At maxclients or after a change of the password, only such connections work. If it
// fails, a new one is tried: the server or a firewall may have closed the old one. A timeout
// that this process notices more than 2 ms late is none (see patientConn in
// internal/transport). If both fail, and no decision has succeeded since the probe began,
// the circuit opens.
//
// An open circuit is asked by the way of all decisions, because it closes for them: about
// every 200 ms. One answer within half of the budget closes it, or five slower ones in a
// row. Each opening within ten seconds of the last closing doubles these numbers, up to
// eight times. A node without slots has nothing to probe: its circuit closes, and its
// successor decides at once.
//
// If a server answers errors on an old connection and is well on a new one, its address has
// come to mean another server, or permissions have changed. Then the idle connections of
// decisions are closed: go-redis would keep them. After an error beside a good probe, a new
// one is tried once a minute, since decisions may be on older connections than probes.
//
// # Until a probe is answered, and after a good one
//
// Late decisions are counted locally, since the process may be busy. Errors follow the mode
// of their rule: see [IsOutage]. After a good probe, both are counted locally for a second.
// If then 20 errors for different keys come within a second, and more than half of the
// decisions meet one, the circuit opens all the same: Redis may permit the limiter no key
// but those of probes, or a slot may have no server.
//
// The command OUTAGES=all go test ./internal/outages -run 'TestAStall|TestAFlood' -v shows
// both sides.
