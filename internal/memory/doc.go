package memory

// # How it works
//
// A Store has 64 shards, each with a lock. A request locks the shards of its keys in
// order. Fully replenished entries are evicted if others need their space. Other entries
// are never evicted, because that would free limited clients.
//
// # The table
//
// A shard keeps its entries in one piece of memory without pointers, found by linear
// probing. An entry has 128 bits of hash instead of the key's text, made with two seeds of
// this process. So a client does not choose how much is stored, and two keys share a
// count only if both halves collide. A table doubles under its shard's lock: with MaxKeys
// at ten million, the last time moves about 100,000 entries of 48 bytes.
//
// # Overflow
//
// If a shard is full, further keys are counted in count-min sketches: one for each class
// (rule, algorithm and period), hashed with a seed of this process, and divided among
// the shards.
// A sketch has 4 rows of 131,072 cells of 16 bytes, and a cell is a whole state. A key's
// estimate is the least of its four cells, made current. A charge raises the cells to the
// estimate plus the cost, and no further. So estimates err only towards denying
// (TestSketchesErrOnlyTowardsDenying). This has consequences:
//
//   - A sketch refunds nothing, because the units in a cell may be another key's.
//   - A sliding_log is counted in windows, as if all units came at the window's end.
//   - Cells are compared at one time. A shard's clock is read under its lock, so it does not
//     step. A Clock that steps back over an edge may forget units of keys that share cells.
//   - A key that gets an entry later takes its estimate with it.
//   - Six classes have sketches of their own. A sketch whose cells all equal keys never seen
//     may become another class's. All further classes share one sketch, whose cells say only
//     until when a key is denied.
//
// After ten seconds of 300,000 new keys a second at 200 a minute, a client is taken to
// have used 9 units more than it has. None of 5,000 clients below their limit is denied,
// and abusers stay within 1 % of theirs: go test ./algorithms -run TestAFloodHarmsNobody -v
// prints the figures.
//
// # Bans
//
// The counts of a ban are never in a sketch, whose cells other keys share: a look needs the
// whole bucket, so one banned client would ban others. They may take as many entries again as
// MaxKeys, because bans begin during floods. Beyond that they are not counted.
//
// # Following another store
//
// A Guard's local counting follows the store: it charges what the store charged, and
// leaves no more than was left there. So it does not begin afresh when it takes over. It
// refunds no more than it has charged, and it never goes into debt. A key that has used
// nothing gets no entry. In this way a key whose limit was used up through another process
// is also denied here.
//
// # Speed
//
// A Count is passed by pointer, and there is one call for each check. Steps are called
// through an interface and get their Params by value, because a pointer would make every
// decision allocate them: go test ./algorithms -run '^$' -bench MemoryTake.
