package shed

// # How it works
//
// One lock guards the places, the line and the limit. Whether a request gets a place or
// gives up is decided under it, so a grant that meets a timeout is not lost
// (TestNoPlaceIsLost). There is no timer for slow clients: a Read of the body or a Write
// notes when it began. Handlers that wait, and have waited for 50 ms in all, are looked for
// only when places run out, at most every 10 ms. A Read in another goroutine counts, too,
// though the handler may work meanwhile: otherwise a few slow bodies would take all places
// of a Shedder in front of a proxy.
//
// The limit moves once a window (1 s and 50 samples). While requests are slow, throughput
// decides: it follows the limit behind a slow dependency, and does not in an overload. The
// gain is averaged over windows. Without that, the limit of one simulation in three went
// the wrong way for a minute. TestOverload has the table of simulations, in virtual time.
//
// The limit learns from requests that did the work, and waited less than 50 ms for their
// clients. It moves only while they are at work on a quarter of the places. A request that is answered 429 tells nothing, whoever refused it:
// the limiter inside, a handler, or an upstream. So a flood of denials can fill the places
// for moments, but not move the limit.
//
// In shadow no goroutine waits. A request that is over keeps its place for as long as it
// would have had it.
