// Package deploy has nothing but the tests of what lies beside it: units for
// systemd and a compose file.
package deploy
