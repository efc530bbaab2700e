// Package keyfunc identifies the clients that a rate limit counts. A [Key] resolves a
// request to a text, and the requests of one rule that resolve to equal texts share one
// count.
//
// Read [Key], [Proxies] and [Func] first. Proxies find the address of a client behind your
// reverse proxies. Func is a key of your own.
//
//	what is limited                           | Key
//	------------------------------------------|------------------------------------
//	a client that connects directly           | IP
//	a client behind proxies of yours          | Proxies{Trusted: …}.IP()
//	the same, IPv6 by /48, as a second rule   | Proxies{Trusted: …}.IPv6(48)
//	a client whose address chi has found      | ContextAddr(middleware.GetClientIPAddr)
//	a user, authenticated in this process     | Context(userID)
//	a user, authenticated by a proxy of yours | Proxies{Trusted: …}.UserID("X-User-ID")
//	the holder of an API key or bearer token  | APIKey("Authorization")
//	a session                                 | Cookie("session"), beside another rule
//	the account of a login, from anywhere     | Required(BodyJSON("email", 8<<10), 400)
//	the same, where the login is a form       | Required(BodyForm("email", 8<<10), 400)
//	a value that the client chooses           | Header("X-Device"), beside another rule
//	all requests together                     | Everyone
//	a user, and an anonymous client by IP     | First(Context(userID), IP)
//	each user at each address                 | Join(Context(userID), IP)
//	each address at each route                | Join(IP, Mux(mux))
//	each user for each of two models          | Join(Context(userID), OneOf(BodyJSON("model", 1<<20), "large", "small"))
//	users only, if another rule limits all    | Optional(Context(userID))
//	users only, if other requests are refused | Required(Context(userID), 401)
//	a user whose name must not be stored      | Hashed(Context(userID), secret)
//	anything else                             | Func(func(r *http.Request) (string, error) { … })
//
// A client chooses what it sends. A key that comes from the client alone limits no client:
// each request can have a new key, or the key of another client. This is true for [Header],
// [BodyJSON] and [BodyForm], for [APIKey] and [Cookie] unless something has verified the value,
// and for every header that names an address or a user. So [IP] reads no header, and [Proxies]
// reads one only if a trusted peer sent it. Trust an address only if nothing but your proxies
// connects from it, if they append the address they see to X-Forwarded-For, and if they replace
// every other header that you read.
//
// The requests of a rule for which a Key returns [ErrNoKey] share one count. [Optional] exempts
// them from the rule (see [ErrSkip]), and [Required] refuses them. IPv6 clients are counted by
// /64, because a subscriber has at least a /64. What two programs could read differently has no
// key, or refuses the request.
//
// Constructors return a Key whatever their arguments are. A Key with a mistake in it, such as a
// nil function, resolves no request, and package middleware reports the mistake. [APIKey],
// [Cookie] and [Hashed] hash what they read; other keys are as personal as what they read.
package keyfunc

// # How it works
//
// A constructor returns leaf(…), or wrapOne(…) for a key around a key. These are [Described].
// Package hint tells package middleware what a key is made of. A key that reads the body looks
// at a replay.Body, which package middleware has put in place.
//
// A new key takes a file with its constructor, a row in the table above, its mistakes in
// mistakes_test.go, its values in the tables of request_test.go, and an example.
