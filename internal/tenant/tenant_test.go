package tenant

import "testing"

func TestRepositoriesThatAreRead(t *testing.T) {
	for _, tc := range []struct {
		patterns []string
		want     bool
	}{
		{nil, false},
		{[]string{""}, false},
		{[]string{"/"}, false},
		{[]string{"*"}, true},
		{[]string{"acme/app"}, true},
		{[]string{"Acme/APP"}, true},
		{[]string{"other/app", "acme/*"}, true},
		{[]string{"acme"}, false},
		{[]string{"acme/"}, false},
		{[]string{"acme/ap"}, false},
		{[]string{"acme/app2"}, false},
		{[]string{"*/app"}, false},
		{[]string{"*/*"}, false},
		{[]string{"acm*/app"}, false},
		{[]string{"acme/a*"}, false},
	} {
		if got := (Grants{Repositories: tc.patterns}).Reads("acme", "app"); got != tc.want {
			t.Errorf("%q reads acme/app: %v, want %v", tc.patterns, got, tc.want)
		}
	}
}
