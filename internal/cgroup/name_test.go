package cgroup

import (
	"strings"
	"testing"
)

func TestNamesThatClimbAreRefused(t *testing.T) {
	for name, ok := range map[string]bool{
		"agentdock": true, "a/b": true, "/system.slice/agentdock.service": true, "..a/b..": true,
		"": false, "/": false, "..": false, "../../x": false, "a/../b": false, "a/./b": false, "a//b": false, "a/": false,
		"a\x00b": false, "a\nb": false, strings.Repeat("a", 2000): false,
	} {
		if err := CheckName(name); (err == nil) != ok {
			t.Errorf("%.20q: %v", name, err)
		}
	}
}
