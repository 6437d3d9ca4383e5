// Package checkouttest is a GitHub for tests: git's own smart HTTP server
// behind an API that checks the App's signature and gives out tokens which
// expire and open one repository, over TLS. Tests change what it answers; what
// they do not change is as strict as the real one.
package checkouttest
