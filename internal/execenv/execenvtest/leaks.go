package execenvtest

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// goroutines returns the stacks of all goroutines by their number.
func goroutines() map[string]string {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	all := map[string]string{}
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		head, _, _ := strings.Cut(stack, " [")
		all[head] = stack
	}
	return all
}

// noGoroutinesLeft waits for goroutines that were not there before to end.
func noGoroutinesLeft(t *testing.T, before map[string]string) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		var left []string
		for head, stack := range goroutines() {
			_, old := before[head]
			if !old && strings.Contains(stack, "agentdock/internal/") && !strings.Contains(stack, "testing.tRunner") {
				left = append(left, stack)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%d goroutines are left, such as:\n%s", len(left), left[0])
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
