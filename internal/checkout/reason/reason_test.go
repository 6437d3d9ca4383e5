package reason

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/internal/fault"
)

func TestEveryReasonHasItsFault(t *testing.T) {
	seen := map[Code]bool{}
	for _, a := range Table() {
		if seen[a.Code] || a.Means == "" {
			t.Errorf("%s is in the table twice or without a meaning", a.Code)
		}
		seen[a.Code] = true
		err := fmt.Errorf("on the way: %w", Wrap(a.Code, errors.New("detail"), "it does not work"))
		if Of(err) != a.Code || fault.CodeOf(err) != a.fault || a.fault == fault.Internal {
			t.Errorf("%s is found as %s, %s", a.Code, Of(err), fault.CodeOf(err))
		}
		if fault.Public(err) != "cannot check out: it does not work" || !strings.HasSuffix(err.Error(), ": detail") {
			t.Errorf("%s says %q in public and %q in full", a.Code, fault.Public(err), err)
		}
	}
	if Of(errors.New("other")) != "" || Of(nil) != "" {
		t.Error("a reason is found where there is none")
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "two\nlines": "two lines", "\x1b[31mred\x1b[0m": "[31mred [0m", "a\x00b": "a b",
		"bad\xff": "bad", "\u202eright to left": "right to left", "  spaces  ": "spaces",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
	if got := Clean(strings.Repeat("x", 1<<20)); len(got) > 310 {
		t.Errorf("%d bytes are left of a long text", len(got))
	}
}
