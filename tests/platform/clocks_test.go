package platform

import (
	"net/http"
	"time"

	"github.com/agentdock/agentdock/internal/testenv"
)

// The time of leases is the record's, whatever clocks workers have (L5).

func (w *world) stepRecordsClock(by string) {
	w.Helper()
	w.Postgres.AdminIn(w.Setting("DATABASE_URL"), "CREATE OR REPLACE FUNCTION agentdock_now() RETURNS BIGINT LANGUAGE sql STABLE PARALLEL SAFE AS "+
		"$$ SELECT (extract(epoch FROM statement_timestamp() + INTERVAL '"+by+"') * 1000000)::BIGINT $$")
}

func clockAhead(w *world, of *row, jobs []*submitted) {
	w.atEdge(of, jobs)
	w.stepRecordsClock("1 hour")
}

// clockBack leaves a dead worker's leases with an hour to go.
func clockBack(w *world, of *row, jobs []*submitted) {
	w.atEdge(of, jobs)
	p := w.workers[w.rng.IntN(2)]
	p.Kill()
	w.stepRecordsClock("0 hours")
	p.Start()
}

// off is less than what S3 servers forgive in the time of a request.
const off = 10 * time.Minute

// clocksStep sets the clocks of all that is ours ahead, back beyond where they
// were, and right again, in the middle of jobs.
func clocksStep(w *world, of *row, jobs []*submitted) {
	for _, by := range []time.Duration{off, -off, 0} {
		w.atEdge(of, jobs)
		for _, pid := range []int{w.API.Pid(), w.workers[0].Pid(), w.workers[1].Pid(), w.Execd.Pid()} {
			testenv.SetClock(w.T, pid, by)
		}
		for _, url := range []string{w.URL, "http://" + w.workers[0].Find(`"metrics":"([^"]+)"`), "http://" + w.workers[1].Find(`"metrics":"([^"]+)"`)} {
			if d := w.clockOf(url) - by; d < -time.Minute || d > time.Minute {
				w.Fatalf("the clock of %s was set to be off by %v and is off by %v more", url, by, d)
			}
		}
	}
}

// clockOf is by how much the clock is off by which a process dates its answers.
func (w *world) clockOf(url string) time.Duration {
	w.Helper()
	res, err := http.Get(url + "/healthz")
	w.ok(err)
	w.ok(res.Body.Close())
	at, err := http.ParseTime(res.Header.Get("Date"))
	w.ok(err)
	return time.Until(at)
}
