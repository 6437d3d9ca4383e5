package supervisor

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/testenv"
)

// alone is the name under which the test binary is the first and only process of a
// PID namespace.
const alone = "supervisor-alone"

// headless is the name under which the test binary is a process whose first thread
// has ended, and whose others live on.
const headless = "supervisor-headless"

func init() {
	if os.Args[0] == headless {
		// Here it is the first thread that runs, and the runtime has another.
		_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	}
}

func TestMain(m *testing.M) {
	if os.Args[0] == alone {
		seen := false
		if err := frozen(func(map[int]process) { seen = true }); err != nil || !seen {
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Where nobody is left to be stopped, whoever waits for that must learn it.
func TestNobodyIsLeftToStop(t *testing.T) {
	testenv.RequireRoot(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Args[0] = alone
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// A program can have its first thread end, and looks like one that has ended then.
func TestAProcessLivesAsLongAsItsThreads(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args[0] = headless
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	var p process
	for p.state != 'Z' {
		var err error
		if p, err = readStat(pid); err != nil {
			t.Fatal(err)
		}
	}
	if p.threads < 2 {
		t.Fatalf("it has %d threads, and is no case", p.threads)
	}
	if !kill(map[int]process{pid: p}, []int{pid}) {
		t.Error("it was taken for dead")
		_ = cmd.Process.Kill()
	}
	_ = cmd.Wait()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %#x", status)
	}
	if kill(map[int]process{pid: {state: 'Z', threads: 1}}, []int{pid}) {
		t.Error("one that has ended is taken for alive")
	}
}

func TestWhoIsBelowWhom(t *testing.T) {
	all := map[int]process{
		10: {parent: 1}, 11: {parent: 10}, 12: {parent: 11}, // a shepherd, its program, a child
		13: {parent: 10},                  // a daemon that fell to the shepherd
		20: {parent: 1}, 21: {parent: 20}, // another
		30: {parent: 1}, 31: {parent: 30}, // fell to the first process
		40: {parent: 41}, 41: {parent: 40}, // seen while it changed
	}
	got := below(all, 10)
	slices.Sort(got)
	if !slices.Equal(got, []int{11, 12, 13}) {
		t.Errorf("below 10 are %v", got)
	}
	got = astray(all, func(pid int) bool { return pid == 10 || pid == 20 })
	slices.Sort(got)
	if !slices.Equal(got, []int{30, 31, 40, 41}) {
		t.Errorf("astray are %v", got)
	}
}

func TestNamesOfProcessesAreNotBelieved(t *testing.T) {
	p, err := readStat(os.Getpid())
	if err != nil || p.parent != os.Getppid() || p.threads < 1 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestAShepherdsExitCodeIsNotTheProgramsOwn(t *testing.T) {
	if status, reason := unwatched(2<<8, "a remark"); unix.WaitStatus(status).Signal() != unix.SIGKILL || !strings.HasPrefix(reason, "a remark; ") {
		t.Errorf("%#x, %q", status, reason)
	}
	if status, _ := unwatched(unix.WaitStatus(unix.SIGTERM), ""); unix.WaitStatus(status).Signal() != unix.SIGTERM {
		t.Errorf("one that was killed: %#x", status)
	}
}
