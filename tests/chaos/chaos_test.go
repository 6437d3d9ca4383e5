// Package chaos kills every kind of process of the execution service at random
// moments, under load, and then looks for what is left and for what was untrue.
//
// The short form runs with the other tests; "make chaos" runs the long one. A
// run is made again with the seed it printed, as far as timing allows.
package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/testenv"
)

var (
	killsFlag   = flag.Int("chaos.kills", 60, "how many kills")
	seedFlag    = flag.Uint64("chaos.seed", 0, "seed of what is killed when; 0 picks one (also AGENTDOCK_CHAOS_SEED)")
	clientsFlag = flag.Int("chaos.clients", 4, "how many clients at once")
	reportFlag  = flag.String("chaos.report", "", "write the table to this file, as Markdown")
)

func TestMain(m *testing.M) {
	if config := os.Getenv(clientVariable); config != "" {
		os.Exit(clientMain(config))
	}
	os.Exit(m.Run())
}

// world is one run: the service, its clients, and what was seen of them.
type world struct {
	t       *testing.T
	execd   *testenv.Execd
	env     *execrpc.Client
	calm    *testenv.Execd // is not killed: what is frozen in it takes longer than execd lives
	rng     *rand.Rand
	program string
	tally   *tally
	clients []*clientProcess
	started int            // clients so far
	busy    sync.WaitGroup // measurements and clean-up under way
	files   int            // descriptors of the idle service
}

func TestKillAnythingAnytime(t *testing.T) {
	testenv.RequireRoot(t)
	seed := *seedFlag
	if seed == 0 {
		_, _ = fmt.Sscan(os.Getenv("AGENTDOCK_CHAOS_SEED"), &seed)
	}
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d; again with -chaos.seed %d -chaos.kills %d", seed, seed, *killsFlag)
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), tally: newTally(seed), program: buildProgram(t)}
	images := testenv.BareStore(t)
	w.execd = testenv.StartExecd(t, images)
	w.env = w.execd.Dial()
	w.calm = testenv.StartExecd(t, images)
	w.files = w.execd.Files()
	for range *clientsFlag {
		w.clients = append(w.clients, w.startClient())
	}
	for i, kind := range schedule(w.rng, *killsFlag) {
		time.Sleep(time.Duration(w.rng.IntN(120)) * time.Millisecond)
		w.kill(kind)
		if (i+1)%100 == 0 {
			t.Logf("%d kills after %v", i+1, time.Since(w.tally.begun).Round(time.Second))
		}
	}
	for _, c := range w.clients {
		c.stop()
	}
	w.busy.Wait()
	w.nothingLeft()
	w.tally.check(t)
	t.Logf("\n%s", w.tally.table())
	if *reportFlag != "" {
		if err := os.WriteFile(*reportFlag, []byte(w.tally.markdown()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// nothingLeft destroys what killed clients left, and looks for the rest.
func (w *world) nothingLeft() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	infos, err := w.env.List(ctx)
	if err != nil {
		w.t.Errorf("List: %v", err)
	}
	for _, info := range infos {
		if err := w.env.Destroy(ctx, info.ID); err != nil {
			w.t.Errorf("Destroy(%s): %v", info.ID, err)
		}
	}
	if infos, err = w.env.List(ctx); err != nil || len(infos) > 0 {
		w.t.Errorf("after Destroy of all, List gives %v, %v", infos, err)
	}
	left := w.execd.Remains(false)
	// Connections of clients that are gone are closed soon, not at once.
	for deadline := time.Now().Add(20 * time.Second); w.execd.Files() > w.files && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond)
	}
	if n := w.execd.Files(); n > w.files {
		left = append(left, fmt.Sprintf("%d open descriptors of the service, %d when it was idle before", n, w.files))
	}
	left = append(left, w.calm.Remains(false)...)
	w.execd.Stop()
	left = append(left, w.execd.Remains(true)...)
	w.tally.left = left
}

// clientProcess is a client in a process of its own.
type clientProcess struct {
	prefix string
	cmd    *exec.Cmd
	stdin  io.Closer
	read   chan struct{} // closed once all it said was read
}

func (w *world) startClient() *clientProcess {
	w.t.Helper()
	w.started++
	c := &clientProcess{prefix: fmt.Sprintf("c%d", w.started), read: make(chan struct{})}
	config, err := json.Marshal(clientConfig{
		Socket: w.execd.Socket, Image: testenv.BareImage, Program: w.program, Prefix: c.prefix, Seed: w.rng.Uint64(),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	c.cmd = exec.Command("/proc/self/exe")
	c.cmd.Env = []string{clientVariable + "=" + string(config)}
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	c.stdin = stdin
	go func() {
		defer close(c.read)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var e event
			if json.Unmarshal(lines.Bytes(), &e) == nil { // a killed client's last line may be cut
				w.tally.saw(e)
			}
		}
	}()
	return c
}

// stop lets the client finish what it does.
func (c *clientProcess) stop() {
	_ = c.stdin.Close()
	<-c.read
	_ = c.cmd.Wait()
}

// kill does not let it finish anything.
func (c *clientProcess) kill() {
	_ = c.cmd.Process.Kill()
	<-c.read
	_ = c.cmd.Wait()
}

func buildProgram(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "program")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, "github.com/agentdock/agentdock/tests/chaos/program")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if msg, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cannot build the program: %v\n%s", err, msg)
	}
	return out
}
