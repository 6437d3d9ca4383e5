package sandbox

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestPackagesAreNamesOnceAndSorted(t *testing.T) {
	list := Packages()
	if len(list) == 0 || !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != len(list) {
		t.Errorf("not sorted, or with duplicates: %q", list)
	}
	for _, p := range list {
		if !regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`).MatchString(p) {
			t.Errorf("%q is no package name", p)
		}
	}
}

// TestDockerfileNamesNoPackages: a list of its own in the Dockerfile would
// drift away from the one everything else uses.
func TestDockerfileNamesNoPackages(t *testing.T) {
	data, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, must := range []string{"COPY packages.txt trim.sh", "/tmp/packages.txt", "sh /tmp/trim.sh", "USER 10001:10001", "WORKDIR /workspace"} {
		if !strings.Contains(text, must) {
			t.Errorf("Dockerfile lacks %q", must)
		}
	}
	install := regexp.MustCompile(`(?m)apt-get install(.*)$`).FindAllStringSubmatch(text, -1)
	if len(install) != 1 {
		t.Fatalf("%d installations", len(install))
	}
	for _, word := range strings.Fields(strings.TrimSuffix(install[0][1], `\`)) {
		if !strings.HasPrefix(word, "--") {
			t.Errorf("Dockerfile installs %q by itself", word)
		}
	}
}
