package rulefile

import (
	"context"
	"fmt"
	"io"
	"os"
	"syscall"
)

// A Source returns the text of a rule document, or an error that wraps fs.ErrNotExist
// if there is none. Errors name a Source by its method String, if it has one. If a
// Source has the method Document(context.Context) (Document, error), as Fleet has, that
// method is called instead of Read, and the rules have the Version of the Document.
type Source interface {
	// Read returns the text as it is now.
	Read(ctx context.Context) ([]byte, error)
}

// File is the path of a file of at most 1 MiB.
type File string

// Read implements [Source].
func (f File) Read(context.Context) ([]byte, error) {
	file, err := os.OpenFile(string(f), os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for its writer
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = problem(printable(string(f)) + " is no regular file: write the rules into one")
	}
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	if err == nil && len(text) > maxSize {
		return nil, problem(fmt.Sprintf("%s: larger than %d bytes, which no rule file needs to be", printable(string(f)), maxSize))
	}
	return text, err
}

func nameOf(s Source) string {
	switch s := s.(type) {
	case File:
		return string(s)
	case Fleet:
		return s.key()
	case fmt.Stringer:
		return s.String()
	}
	return fmt.Sprintf("%T", s)
}
