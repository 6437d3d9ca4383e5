package execrpc

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestHeartbeatsFillTheSilenceAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		beat := "beat"
		b := startBeating(func(*string) error { sent.Add(1); return nil }, &beat)
		say := func(s string) {
			if err := b.send(&s); err != nil {
				t.Error(err)
			}
		}
		say("a")
		for range 10 { // never silent for a whole interval
			time.Sleep(heartbeat - time.Second)
			say("b")
		}
		if sent.Load() != 11 {
			t.Errorf("sent %d messages, want the 11", sent.Load())
		}
		time.Sleep(4 * heartbeat)
		synctest.Wait()
		b.stop()
		if n := sent.Load() - 11; n < 3 || n > 4 {
			t.Errorf("%d heartbeats in four intervals", n)
		}
		time.Sleep(4 * heartbeat)
		synctest.Wait()
		if n := sent.Load() - 11; n > 4 {
			t.Error("heartbeats after stop")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int64
		beat := "beat"
		b := startBeating(func(*string) error { tries.Add(1); return errors.New("dead") }, &beat)
		time.Sleep(10 * heartbeat)
		synctest.Wait()
		if tries.Load() != 1 {
			t.Errorf("%d heartbeats on a dead stream", tries.Load())
		}
		b.stop()
	})
}
