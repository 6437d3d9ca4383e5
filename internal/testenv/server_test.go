package testenv

import (
	"os"
	"testing"
)

// TestServersLeaveNothing: servers are killed, started again, held and let go,
// and neither a process nor a directory is left of them.
func TestServersLeaveNothing(t *testing.T) {
	var dirs []string
	var gone []chan struct{}
	t.Run("servers", func(t *testing.T) {
		p := StartPostgres(t)
		back := p.Cut(p.Database())
		back()
		p.Crash()
		p.Start()
		p.Pause()
		p.Resume()
		p.Stop()
		p.Start()
		p.Pause() // the end of the test finds it so
		r := StartRedis(t)
		r.Kill()
		r.Start()
		dirs, gone = []string{p.dir, r.dir}, []chan struct{}{p.gone, r.gone}
	})
	if len(dirs) == 0 && !t.Failed() {
		t.Skip("no servers")
	}
	for i := range dirs {
		if _, err := os.Stat(dirs[i]); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", dirs[i], err)
		}
		select {
		case <-gone[i]:
		default:
			t.Errorf("the server in %s runs on", dirs[i])
		}
	}
}
