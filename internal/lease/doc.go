package lease

// # How it works
//
// The units that the store grants at a time are a block. A block is charged by the same
// script and the same circuit as a request. It has at most a quarter of what the store had
// left. If the store refuses a block, other processes have the units. Requests then ask one
// by one until the store reports that more are left. The result of the charge is kept, and
// Settle refunds the rest.
//
// # Clocks
//
// If this process's clock runs faster than the store's, blocks end early. If it runs slower
// by more than a thousandth, as on a virtual machine that is paused, units may be spent in a
// later window: at most what all blocks hold at a time, half of the limit
// (TestLeasesWithClocksThatRunApart).
//
// # Life of a block
//
//   - A new block joins an older one of the same window. Otherwise the older one is refunded.
//   - Units are spent for a second at most. A timer refunds the rest, because the next
//     request may never come. Close refunds all.
//   - Leases are used before known denials, because a known denial is decided by a state in
//     which leased units are counted. If another check denies the request, the units go back
//     into the block of their window.
//   - 4,096 keys of a process have leases. A further key replaces the one in its shard with
//     the fewest requests, of whatever cost. So a client that sends many keys takes no lease
//     from a key in use (TestAFloodOfKeysTakesNoLeaseInUse).
//
// TestLeasesModel draws histories of three processes with pauses, crashes, outages and
// settlements, and wants no window above its limit. TestABlockAndTheClocks stops a process
// for longer than a block may be spent.
