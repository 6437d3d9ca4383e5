package run

import "testing"

// A limit at which a command can end has a kind of its own.
func TestEveryLimitToEndAtIsAKind(t *testing.T) {
	kinds := map[Limit]Kind{LimitPIDs: PIDs, LimitDisk: Disk, LimitInodes: Inodes, LimitOutput: Output}
	if len(AtLimits()) != len(kinds) {
		t.Errorf("commands can end at %q", AtLimits())
	}
	for _, l := range AtLimits() {
		if l.EndsAt() != kinds[l] {
			t.Errorf("a command that ends at %s has the outcome %q, want %q", l, l.EndsAt(), kinds[l])
		}
	}
}
