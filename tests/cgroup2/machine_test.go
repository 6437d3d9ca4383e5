package cgroup2

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// machine is what is needed to boot the virtual machine.
type machine struct{ qemu, kernel string }

// findMachine looks for the parts and says in one sentence which are missing.
func findMachine() (m machine, missing string) {
	var lacks []string
	var err error
	if m.qemu, err = exec.LookPath("qemu-system-x86_64"); err != nil {
		lacks = append(lacks, "qemu-system-x86_64 (scripts/deps.sh --tests installs it)")
	}
	if m.kernel = os.Getenv("AGENTDOCK_TEST_KERNEL"); m.kernel == "" {
		m.kernel = filepath.Join("..", "..", "bin", "tools", "vmlinuz")
	}
	if _, err := os.Stat(m.kernel); err != nil {
		lacks = append(lacks, "a kernel (scripts/kernel.sh fetches one)")
	}
	return m, strings.Join(lacks, " and ")
}

// parts are files to put into the machine, by their name there.
type parts map[string]string

// run boots the machine, which carries out the plan and turns itself off, and
// gives each line of its console to yield. The processor is emulated even
// where it could be virtualized: what is tested is the same everywhere, and
// nested virtualization often is not.
func (m machine) run(ctx context.Context, t *testing.T, files parts, plan Plan, yield func(line string)) error {
	root := filepath.Join(t.TempDir(), "root.cpio")
	if err := writeRoot(root, files, plan); err != nil {
		return fmt.Errorf("cannot make the machine's root: %w", err)
	}
	cmd := exec.CommandContext(ctx, m.qemu,
		"-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "2048",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio",
		"-kernel", m.kernel, "-initrd", root,
		// Only what is critical of the kernel's own messages: they would come
		// between those that are read here.
		"-append", "console=ttyS0 loglevel=3 panic=-1 reboot=t")
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	var complaints strings.Builder
	cmd.Stderr = &complaints
	console, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start the machine: %w", err)
	}
	lines := bufio.NewScanner(console)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		yield(strings.TrimRight(lines.Text(), "\r"))
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("the machine did not come to its end: %w %s", err, complaints.String())
	}
	return lines.Err()
}

func writeRoot(name string, files parts, plan Plan) error {
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	defer out.Close()
	buffered := bufio.NewWriterSize(out, 1<<20)
	root := newInitramfs(buffered)
	text, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	root.file(PlanFile, text)
	for inside, source := range files {
		root.fileFrom(inside, source)
	}
	if err := root.end(); err != nil {
		return err
	}
	return buffered.Flush()
}

// build compiles what runs in the machine. There is no Go in it.
func build(t *testing.T, dir string) {
	t.Helper()
	const module = "github.com/agentdock/agentdock/"
	for _, args := range [][]string{
		{"build", "-o", "init", module + "tests/cgroup2/init"},
		{"build", "-o", "probe", module + "internal/execenv/execenvtest/probe"},
		{"test", "-c", "-o", "cgroup.test", module + "internal/cgroup"},
		{"test", "-c", "-o", "contract.test", module + "tests/contract"},
		{"test", "-c", "-o", "inside.test", module + "tests/cgroup2"},
	} {
		begun := time.Now()
		args[len(args)-2] = filepath.Join(dir, args[len(args)-2])
		last := args[len(args)-1]
		args = append(append(args[:len(args)-1:len(args)-1], "-trimpath", "-buildvcs=false", "-ldflags=-s -w"), last)
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("cannot build %s: %v\n%s", last, err, out)
		}
		t.Logf("built %s in %s", last, time.Since(begun).Round(time.Millisecond))
	}
}
