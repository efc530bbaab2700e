// Package keyfunc says who a rate limit counts. A [Func] reads the key of a
// request, and the requests of one rule that have equal keys share one count.
//
//	who is limited                            | Func
//	------------------------------------------|------------------------------------
//	a client that connects directly           | IP
//	a client behind proxies of yours          | Proxies{Trusted: …}.IP
//	the same, IPv6 by /48 as a second level   | Proxies{Trusted: …}.IPv6(48)
//	a client whose address chi has found out  | ContextAddr(middleware.GetClientIPAddr)
//	a user, authenticated in this process     | Context(userID)
//	a user, authenticated by a proxy of yours | Proxies{Trusted: …}.UserID("X-User-ID")
//	the holder of an API key or bearer token  | APIKey("Authorization")
//	the account of a login, from anywhere     | Required(Body("email", 8<<10), 400)
//	a value the client says about itself      | Header("X-Device"), beside another rule
//	all together                              | Everyone
//	a user, and an anonymous client by IP     | First(Context(userID), IP)
//	each user at each address                 | Join(Context(userID), IP)
//	each address at each route                | Join(IP, Mux(mux))
//	users only, where another rule limits all | Optional(Context(userID))
//	users only, where others are refused      | Required(Context(userID), 401)
//	somebody whose name must not be stored    | Hashed(Context(userID), key)
//
// # Security
//
// What the client writes, the client chooses. A key taken from it alone limits
// nobody, as each request can bring a new one; worse, a client can bring the
// key of somebody else and use up their limit. That holds for [Header] and [Body],
// for [APIKey] where nothing has verified the key yet, and for every header that
// names an address or a user, such as X-Forwarded-For. Hence [IP] reads no
// header, and [Proxies] believes one only from the peers it was told to trust.
//
// Trust an address only if nothing but your proxies can connect from it, and if
// they append the address they see to X-Forwarded-For and replace every other
// header they vouch for.
//
// A request without a key is not a request without a limit: the requests for
// which a Func returns [ErrNoKey] share one count. Only [ErrSkip] exempts a
// request from a rule, and of the Funcs here only [Optional] introduces it;
// [Required] refuses the request instead.
//
// IPv6 clients are counted by /64, since a subscriber is given at least that much:
// by single address, one client would have 2^64 keys. Who has more than a /64 is
// stopped by a second rule, by [Proxies.IPv6].
//
// [APIKey] and [Hashed] hash what they read. All other keys are as long and as
// personal as what they were read from; whoever stores them bounds them.
package keyfunc
