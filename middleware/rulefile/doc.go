// Package rulefile reads rules from YAML or JSON: from a file, or from a key in
// Redis that all instances watch. Only programs that import rulefile link a YAML parser.
//
//	version: 1
//	rules:
//	  - name: login
//	    match: [POST /auth/login, POST /auth/register]
//	    key: ip                      # or a list: [ip, route] counts each pair
//	    limit: 5/1m sliding_log
//	    charge_on: [401, 403]
//	    ban: {after: 10, within: 10m, for: 15m}
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
// Each field of a rule is a field of [ratelimit.Rule], in snake case. docs/rules.md
// explains the fields; rules.schema.json is a JSON Schema for editors. Fields that start with
// "x-" are notes.
//
// Reading is strict. An unknown field, a value of another type, an alias or a
// duplicate key is an error. All mistakes are reported at once, each with its line
// and column. A document with a mistake has no effect: the rules in force stay.
package rulefile

// # How it works
//
// middleware.Rule is the data, and middleware.ValidateRules finds every mistake in it. This
// package is a form of that data.
//
//   - One table has a row for each field: its name and how it is read.
//   - The decoder walks the parser's tree of nodes, which know their lines, and notes where
//     each path is. A mistake that ValidateRules finds has a path, unless it follows from one
//     that was already reported. The parser itself may name the line where a block begins;
//     syntax.go finds a nearer one.
//   - Aliases, anchors, merge keys and tags are refused, so a small document cannot expand.
//     A document has at most 1 MiB, 32 levels, 1,000 rules, 1,000 patterns in one list and 16
//     parts in one key.
//   - The schema equals the loader: TestSchemaEqualsTheLoader puts each of some 200 values into
//     each field, and FuzzParse compares any document.
//   - A key that was read keeps its name, so the log can say that its rule has changed.
//
// Watch compares what it reads, because notifications of file systems miss what containers
// and network file systems do. A change counts when it was read twice, 0.2 s apart: the
// first half of a rule file is often a valid one. Middleware.RulesRevision tells a watcher that
// other code has set rules; it then sets those of the document again.
//
// A Fleet's document is one string: a comment with its version and SHA-256, and the text.
// The digest shows that it was written by hand. The script that publishes compares the version.
