package oneshot

import (
	"fmt"
	"strings"

	"github.com/agentdock/agentdock/internal/run"
)

// deniedShown is how many servers the line names.
const deniedShown = 3

// egressDenied names the servers that were refused.
func egressDenied(u run.NetworkUse) string {
	if len(u.Denied) == 0 {
		return ""
	}
	var names []string
	for _, d := range u.Denied[:min(len(u.Denied), deniedShown)] {
		name := d.Name
		if d.Port != 0 {
			name = fmt.Sprintf("%s:%d", name, d.Port)
		}
		if d.Count > 1 {
			name = fmt.Sprintf("%s (%d times)", name, d.Count)
		}
		names = append(names, name)
	}
	if more := len(u.Denied) - deniedShown; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return ", egress denied: " + strings.Join(names, ", ")
}
