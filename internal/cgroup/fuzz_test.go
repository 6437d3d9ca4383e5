package cgroup

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
)

// FuzzCounters: a counter that is in a file is read or the file is refused. An
// out-of-memory kill that is overlooked would make another outcome of it.
func FuzzCounters(f *testing.F) {
	f.Add([]byte("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\n"))
	f.Add([]byte("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"))
	f.Add([]byte("oom_kill 99999999999999999999\n"))
	f.Add(append(bytes.Repeat([]byte("x"), 70000), "\noom_kill 1\n"...))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := parseKeys(bytes.NewReader(data))
		if err != nil {
			return
		}
		want, there := int64(0), false
		for _, line := range strings.Split(string(data), "\n") {
			if v, ok := strings.CutPrefix(line, "oom_kill "); ok {
				if n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64); err == nil {
					want, there = n, true
				}
			}
		}
		if got, ok := keys["oom_kill"]; got != want || ok != there {
			t.Fatalf("%d, %v; want %d, %v", got, ok, want, there)
		}
	})
}
