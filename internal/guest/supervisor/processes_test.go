package supervisor

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/testenv"
)

// alone is the name under which the test binary is the first and only process of a
// PID namespace.
const alone = "supervisor-alone"

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
