// Package egress installs with the programs that people use, in real sandboxes and
// through the real gateway, from servers of its own on loopback: by name, with TLS
// of an authority of its own.
package egress
