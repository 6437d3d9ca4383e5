package reason

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/agentdock/agentdock/internal/fault"
)

func TestEachThingIsSaidOnce(t *testing.T) {
	a, b := errors.New("a"), errors.New("b")
	away := Wrap(Unavailable, a, "it is away")
	for name, tc := range map[string]struct {
		err          error
		full, public string
		code         Code
	}{
		"one":                        {away, "cannot check out: it is away: a", "cannot check out: it is away", Unavailable},
		"around another":             {Wrap(Malformed, away, "no"), "cannot check out: no: it is away: a", "cannot check out: no", Malformed},
		"around what it says itself": {Wrap(Unavailable, away, "it is away"), "cannot check out: it is away: a", "cannot check out: it is away", Unavailable},
		"around nothing more":        {Wrap(TooLarge, errors.New("full"), "full"), "cannot check out: full", "cannot check out: full", TooLarge},
		"joined":                     {Wrap(Malformed, errors.Join(a, b, a), "no"), "cannot check out: no: a; b", "cannot check out: no", Malformed},
		"and another": {Also(Wrap(RefNotFound, b, "no ref"), away),
			"cannot check out: no ref; besides, it is away: b; a", "cannot check out: no ref; besides, it is away", RefNotFound},
		"and another, without a cause": {Also(New(RefNotFound, "no ref"), away),
			"cannot check out: no ref; besides, it is away: a", "cannot check out: no ref; besides, it is away", RefNotFound},
		"and one of others": {Also(New(RefNotFound, "no ref"), a), "cannot check out: no ref; besides, a", "cannot check out: no ref; besides, a", RefNotFound},
		"of others, and one": {Also(fmt.Errorf("ended: %w", context.Canceled), b),
			"ended: context canceled; b", "internal error", ""},
		"and nothing":        {Also(away, nil), "cannot check out: it is away: a", "cannot check out: it is away", Unavailable},
		"nothing, and":       {Also(nil, away), "cannot check out: it is away: a", "cannot check out: it is away", Unavailable},
		"a line":             {Line(errors.Join(a, errors.New("\x1b[31mb\r\n\n c"), a)), "a; [31mb; c", "internal error", ""},
		"a line that is one": {Line(a), "a", "internal error", ""},
	} {
		if tc.err.Error() != tc.full || fault.Public(tc.err) != tc.public || Of(tc.err) != tc.code {
			t.Errorf("%s: %q, in public %q, of %q", name, tc.err, fault.Public(tc.err), Of(tc.err))
		}
	}
	if err := Also(fmt.Errorf("ended: %w", context.Canceled), b); !errors.Is(err, context.Canceled) || !errors.Is(err, b) {
		t.Errorf("%v does not wrap both", err)
	}
	if err := Line(errors.Join(a, b)); !errors.Is(err, a) || !errors.Is(err, b) || Line(nil) != nil {
		t.Errorf("%v does not wrap both", err)
	}
	if err := Also(Wrap(RefNotFound, b, "no ref"), away); !errors.Is(err, a) || !errors.Is(err, b) {
		t.Errorf("%v does not wrap both causes", err)
	}
}
