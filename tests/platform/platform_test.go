// Package platform takes the parts of the platform away, one after the other
// and in the middle of jobs, and then asks of every job whether it ended once,
// ran once, lost nothing of its log, and left nothing. The parts are the
// programs themselves, as a team runs them, over real servers.
//
// The short form runs with the other tests; "make chaos" runs the long one. The
// seed decides what is hit when, as far as timing allows.
package platform

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/run"
)

var (
	roundsFlag = flag.Int("platform.rounds", 0, "how often each fault is caused; 0 is the short form, once")
	seedFlag   = flag.Uint64("platform.seed", 0, "seed of what is hit when; 0 picks one (also AGENTDOCK_CHAOS_SEED)")
	reportFlag = flag.String("platform.report", "", "write the table to this file, as Markdown")
	onlyFlag   = flag.String("platform.only", "", "cause this fault only")
)

func seed(t *testing.T) uint64 {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		_, _ = fmt.Sscan(os.Getenv("AGENTDOCK_CHAOS_SEED"), &seed)
	}
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d; again with -platform.seed %d -platform.rounds %d", seed, seed, *roundsFlag)
	return seed
}

// TestFaults causes every fault on one platform after the other: with an S3
// store, and with a directory of artifacts on a disk that fills up.
func TestFaults(t *testing.T) {
	seed := seed(t)
	all := newTally(seed)
	for _, p := range []struct {
		name  string
		disk  bool
		kinds []kind
	}{
		{"with S3", false, kinds(*roundsFlag > 0)},
		{"with a directory", true, diskKinds()},
	} {
		t.Run(p.name, func(t *testing.T) {
			w := newWorld(t, seed, p.disk, all)
			w.tryAll(p.kinds)
		})
	}
	t.Logf("\n%s", all.markdown())
	if *reportFlag != "" {
		if err := os.WriteFile(*reportFlag, []byte(all.markdown()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

func (w *world) tryAll(kinds []kind) {
	w.Helper()
	var all []verdict
	for range max(1, *roundsFlag) {
		for _, k := range kinds {
			if *onlyFlag == "" || *onlyFlag == k.name {
				all = append(all, w.try(k)...)
			}
		}
	}
	w.unchanged(all)
}

func (w *world) try(k kind) []verdict {
	w.Helper()
	begun := time.Now()
	of := w.tally.row(k.name)
	of.times++
	w.mark("fault: " + k.name)
	if k.before != nil {
		k.before(w)
	}
	jobs := w.submit(k.shape)
	k.cause(w, of, jobs)
	ended := w.settle(of, jobs)
	if w.Failed() {
		w.FailNow() // what comes next would be blamed for it
	}
	for _, v := range ended {
		if wrong := k.expect(v); wrong != "" {
			w.Errorf("%s: job %s: %s", k.name, v.job.ID, wrong)
		}
	}
	of.longest = max(of.longest, time.Since(begun))
	w.Logf("%s: %v", k.name, time.Since(begun).Round(time.Millisecond))
	return ended
}

// unchanged: what has ended has not ended again.
func (w *world) unchanged(all []verdict) {
	w.Helper()
	for _, v := range all {
		now := w.job(v.job.ID)
		if now.State != v.job.State || now.Attempt != v.job.Attempt || !now.FinishedAt.Equal(v.job.FinishedAt) ||
			!reflect.DeepEqual(now.Outcome, v.job.Outcome) || !run.State(now.State).Terminal() {
			w.Errorf("job %s was %s and is %s", now.ID, v.job.State, now.State)
		}
	}
}
