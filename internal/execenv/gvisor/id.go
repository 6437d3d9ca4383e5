package gvisor

import (
	"crypto/rand"
	"strings"
)

// newID names a command whose caller did not.
func newID() string { return strings.ToLower(rand.Text()) }
