// Package browser tests the lab's and the operators' pages in a real Chromium. It is a
// module of its own, so that the driver never enters a user's go.mod:
//
//	make test-browser
package browser
