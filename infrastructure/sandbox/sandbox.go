// Package sandbox holds what the default sandbox image is made of. The
// Dockerfile in this directory reads the same files, so that the Docker
// fallback and every other environment run the same contents.
package sandbox

import (
	_ "embed"
	"strings"
)

//go:embed packages.txt
var packages string

// Trim is a shell script that runs inside the image, as root, once its
// packages are installed.
//
//go:embed trim.sh
var Trim string

// Packages returns the names of the distribution's packages in the image.
func Packages() []string {
	var list []string
	for line := range strings.Lines(packages) {
		line, _, _ = strings.Cut(line, "#")
		list = append(list, strings.Fields(line)...)
	}
	return list
}
