package clauses

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const port = `// Package port does things.
//
//   - P1. The first. It says
//     more than a line; P7. is no clause.
//   - P2. The second.
//
// And of time:
//
//   - T1. The third.
package port

//   - P3. Not of the package comment.
const x = 1
`

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "port.go")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// complaints stands in for a test that is expected to fail.
type complaints struct {
	testing.TB
	said []string
}

func (*complaints) Helper() {}
func (c *complaints) Errorf(format string, args ...any) {
	c.said = append(c.said, fmt.Sprintf(format, args...))
}

func TestHold(t *testing.T) {
	file := write(t, port)
	whole := []Case{{"P1", "a"}, {"P1", "b"}, {"P2", "a"}, {"T1", "a"}}
	for _, tc := range []struct {
		name  string
		cases []Case
		want  []string
	}{
		{"whole", whole, nil},
		{"clause without a case", whole[:3], []string{"clause T1 has no case"}},
		{"case without a clause", append(slices.Clone(whole), Case{"P3", "a"}), []string{"case P3_a is about a clause that the protocol does not have"}},
		{"one name twice", append(slices.Clone(whole), Case{"P2", "a"}), []string{"two cases are named P2_a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := &complaints{TB: t}
			Hold(got, file, tc.cases)
			if diff := cmp.Diff(tc.want, got.said); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("one clause twice", func(t *testing.T) {
		got := &complaints{TB: t}
		Hold(got, write(t, "// Package p.\n//\n//   - P1. One.\n//   - P1. Another.\npackage p\n"), []Case{{"P1", "a"}})
		if diff := cmp.Diff([]string{"the protocol has two clauses P1"}, got.said); diff != "" {
			t.Error(diff)
		}
	})
}
