package egress

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/internal/egress/link"
	"github.com/agentdock/agentdock/internal/run"
)

// However much a program has refused, and however often it connects, the transcript
// says which rule the bytes went out by; and it can be told.
func TestNothingHidesWhereBytesWent(t *testing.T) {
	var r record
	long := strings.Repeat("a", 240)
	for i := range 3000 {
		r.refused(strconv.QuoteToASCII(strings.Repeat("\x00", 255)+strconv.Itoa(i)), 443, "it is not allowed")
		r.failed(target{long, 443}, long, strings.Repeat("\x00", 200))
	}
	const rules = 300 // more than a policy has; they were changed
	sent := map[string]int64{}
	for i := range maxAllowedListed + 2*rules {
		rule := fmt.Sprintf("%s.%03d:443", long, i%rules)
		e := r.opened(target{long, 443}, rule, "192.0.2.1:443")
		r.sent(e, 10+i)
		r.received(e, 1)
		r.ended(e)
		sent[rule] += int64(10 + i)
	}
	use := r.use()
	var out, in int64
	refused := 0
	for _, c := range use.Connections {
		if c.Decision != run.EgressAllowed {
			refused++
			continue
		}
		out, in = out+c.SentBytes, in+c.ReceivedBytes
		sent[c.Rule] -= c.SentBytes
		if c.Duration == 0 {
			t.Fatalf("a line never ended: %+v", c)
		}
	}
	if out != use.SentBytes || in != use.ReceivedBytes {
		t.Errorf("the lines have %d and %d bytes of %d and %d", out, in, use.SentBytes, use.ReceivedBytes)
	}
	named := 0
	for _, left := range sent {
		if left == 0 {
			named++
		}
	}
	if named < maxSums-1 {
		t.Errorf("the bytes of %d rules are by name", named)
	}
	if refused != maxRefusedListed || len(use.Connections) != run.MaxConnectionsListed {
		t.Errorf("%d refusals are listed of %d lines", refused, len(use.Connections))
	}
	if line, err := json.Marshal(link.Answer{Use: &use}); err != nil || len(line) >= link.MaxAnswer {
		t.Errorf("it takes %d bytes to tell, %v", len(line), err)
	}
}
