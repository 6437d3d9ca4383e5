// Package checkout gets hostile repositories into real sandboxes, and looks for
// the token of a private one wherever it could be. What it found is in
// docs/checkout.md.
package checkout
