//go:build !race

package sqlite_test

const backlog = 10_000
