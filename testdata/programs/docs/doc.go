// Package docs has the code that the pages of docs/ show, a file for each page.
// A test compiles it and compares it with the pages: go test ./internal/docs.
package docs
