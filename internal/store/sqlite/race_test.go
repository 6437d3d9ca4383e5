//go:build race

package sqlite_test

// backlog is small here: the race detector looks at every access to memory of
// the database too, which makes it twenty times slower.
const backlog = 500
