// Package boundary holds no code, only tests: they read the module's import
// graph and fail where a package depends on something that the architecture
// keeps away from it.
//
// Two properties rest on it. Packages stay replaceable, because a port never
// knows its adapters. And the trust line is a fact about binaries, not a habit:
// the execution service cannot leak a database password or a GitHub token that
// it has no code to use (A3).
//
// A linter checks the direct imports too and says so while you type (depguard
// in .golangci.yml). These tests also see what comes in indirectly, and they
// run where the linter is not installed.
//
// To change a rule, edit the tables in rules_test.go; each entry carries the
// reason it exists, and a reason that no longer holds is what a review is about.
package boundary
