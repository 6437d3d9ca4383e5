package supervisor

import (
	"os/exec"
	"slices"
	"testing"
)

func TestWhenToCount(t *testing.T) {
	for _, tc := range []struct {
		share share
		last  int
		due   bool
	}{
		{share{most: 100}, 100, false},
		{share{most: 100}, 101, true},
		{share{most: 100, last: 1000, counted: 60}, 1040, false},
		{share{most: 100, last: 1000, counted: 60}, 1041, true},
		{share{most: 100, last: 1000, counted: 60}, 5, true},      // it began again
		{share{most: 100, last: 1000, counted: 300}, 1010, false}, // it is over, and nearly nobody came
		{share{most: 100, last: 1000, counted: 300}, 1017, true},
	} {
		if got := tc.share.due(tc.last); got != tc.due {
			t.Errorf("%+v, %d: %v", tc.share, tc.last, got)
		}
	}
}

func TestWhoHasMost(t *testing.T) {
	storm, other := &herding{number: 1}, &herding{number: 2}
	all := map[int]process{
		10: {parent: 1}, 11: {parent: 10}, 12: {parent: 11}, 13: {parent: 11}, 14: {parent: 13},
		20: {parent: 1}, 21: {parent: 20}, 22: {parent: 21},
		30: {parent: 1}, 31: {parent: 30},
	}
	s := &supervisor{flock: map[int]*herding{10: storm, 20: other}}
	h, most := s.largest(all)
	slices.Sort(most)
	if h != storm || !slices.Equal(most, []int{11, 12, 13, 14}) {
		t.Errorf("%+v has %v", h, most)
	}
	for pid := 32; pid < 40; pid++ {
		all[pid] = process{parent: 31}
	}
	if h, most := s.largest(all); h != nil || len(most) != 10 {
		t.Errorf("of what fell to the first process, %v were found, of %+v", most, h)
	}
}

func TestTheLastProcessCountsUp(t *testing.T) {
	before, err := lastProcess()
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.Command("true").Run(); err != nil {
		t.Fatal(err)
	}
	if after, err := lastProcess(); err != nil || after == before {
		t.Errorf("a process was made, and the last was %d and is %d, %v", before, after, err)
	}
}
