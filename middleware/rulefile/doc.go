// Package rulefile reads rules from YAML or JSON: from a file, or from a key in
// Redis that all instances watch. Only programs that import it have a YAML parser.
//
//	version: 1
//	rules:
//	  - name: login
//	    match: [POST /auth/login, POST /auth/register]
//	    key: ip                      # or a list that is joined: [ip, route]
//	    limit: 5/1m fixed_window
//	    charge_on: [401, 403]
//	    ban: {after: 10, within: 1m, for: 15m}
//	    fail: closed
//	    hidden: true
//	  - name: per-user
//	    key: user                    # a name of the program: Loader.Keys
//	    limit: 100/1m token_bucket
//	    tiers: {pro: 1000/1m token_bucket, internal: unlimited}
//	    costs: {POST /reports: 10}
//	    shadow: true                 # counted and reported, but
//	    enforce: 10%                 # enforced for only 10 % of the keys
//
// Read [Loader], [File] and [Fleet] first. A Loader reads the rules. File and Fleet
// are the two places where the rules can be.
//
// Each field is a field of [ratelimit.Rule], in snake case. docs/rules.md explains
// the fields, and rules.schema.json is a JSON Schema for editors. Fields that start
// with "x-" are notes.
//
// Reading is strict. An unknown field, a value of another type, an alias or a
// duplicate key is an error. All mistakes are reported at once, each with its line
// and column. A document with a mistake has no effect: the rules in force stay.
package rulefile
