package docker

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/moby/moby/client"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// confined looks from outside at what the host's kernel has for the sandbox's
// first process, before anything hostile runs in it. What the daemon was asked
// for, and what it says it did, proves nothing.
func (b *box) confined(ctx context.Context) error {
	result, err := b.env.engine.ContainerInspect(ctx, b.name(), client.ContainerInspectOptions{})
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "cannot look at sandbox %s", b.Spec.ID)
	}
	pid := result.Container.State.Pid
	if pid <= 0 {
		return fault.Wrap(fault.Unavailable, b.whyNot(errLinkClosed), "sandbox %s was lost while it started", b.Spec.ID)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return fault.Wrap(fault.Unsupported, err, "cannot see what the kernel has for sandbox %s; the Docker daemon must run on this host, and its processes be visible here", b.Spec.ID)
	}
	interfaces, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", pid))
	if err != nil {
		return fault.Wrap(fault.Unsupported, err, "cannot see what network sandbox %s has", b.Spec.ID)
	}
	wrong := append(statusFaults(status, b.env.daemon.rootless), interfaceFaults(interfaces)...)
	if len(wrong) > 0 {
		return fault.New(fault.Unsupported, "sandbox %s is not confined as it must be: %s", b.Spec.ID, strings.Join(wrong, "; "))
	}
	return nil
}

// statusFaults reads /proc/PID/status.
func statusFaults(status []byte, rootless bool) (wrong []string) {
	have := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		have[name] = strings.TrimSpace(value)
	}
	want := func(name, value, means string) {
		if have[name] != value {
			wrong = append(wrong, fmt.Sprintf("%s (%s is %q, not %q)", means, name, have[name], value))
		}
	}
	want("Seccomp", "2", "it has no system call filter")
	want("NoNewPrivs", "1", "it can gain privileges")
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		want(set, "0000000000000000", "it has capabilities")
	}
	if levels := strings.Fields(have["NSpid"]); len(levels) < 2 || levels[len(levels)-1] != "1" {
		wrong = append(wrong, fmt.Sprintf("it has no PID namespace of its own (NSpid is %q)", have["NSpid"]))
	}
	for _, id := range []string{"Uid", "Gid"} {
		for _, field := range strings.Fields(have[id]) {
			n, err := strconv.Atoi(field)
			if err != nil || n == 0 || rootless && n == execenv.UID {
				wrong = append(wrong, fmt.Sprintf("it is no user apart on the host (%s is %q)", id, have[id]))
				break
			}
		}
		if have[id] == "" {
			wrong = append(wrong, id+" is missing")
		}
	}
	return wrong
}

// interfaceFaults reads /proc/PID/net/dev.
func interfaceFaults(dev []byte) (wrong []string) {
	lines := bufio.NewScanner(bytes.NewReader(dev))
	seen := false
	for lines.Scan() {
		name, _, ok := strings.Cut(strings.TrimSpace(lines.Text()), ":")
		if !ok {
			continue
		}
		if seen = seen || name == "lo"; name != "lo" {
			wrong = append(wrong, "it has the network interface "+name)
		}
	}
	if !seen {
		wrong = append(wrong, "it has no loopback interface")
	}
	return wrong
}
