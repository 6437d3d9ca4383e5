package e2b

import (
	"context"
	"encoding/base32"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	pb "github.com/agentdock/agentdock/internal/compat/e2b/processpb"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// Commands have numbers here and names at their sandbox. The name holds the
// number, and the tag if its caller gave one, so everything that is said about
// commands is asked of the sandbox, and any process gives the same answer.
var processName = regexp.MustCompile(`^e2b-([1-9][0-9]{0,9})(?:-([0-9a-v]+))?$`)

// maxTag is how long a tag may be, for a name has 63 characters.
const maxTag = 25

var tagEncoding = base32.HexEncoding.WithPadding(base32.NoPadding)

// process is a command that came in this way.
type process struct {
	pid uint32
	tag *string
	execenv.ExecInfo
}

func (p process) ended() bool { return p.Result != nil }

// newProcess gives a command a number that nothing else has.
func newProcess(tag *string) (process, error) {
	if tag != nil && len(*tag) > maxTag {
		return process{}, fault.New(fault.Invalid, "a tag of %d bytes is longer than %d", len(*tag), maxTag)
	}
	return process{pid: rand.Uint32N(1<<31-1) + 1, tag: tag}, nil
}

func (p process) name() string {
	name := fmt.Sprintf("e2b-%d", p.pid)
	if p.tag != nil && *p.tag != "" {
		name += "-" + strings.ToLower(tagEncoding.EncodeToString([]byte(*p.tag)))
	}
	return name
}

// processOf is the reverse of name, for a command of the sandbox that may have
// come in another way.
func processOf(info execenv.ExecInfo) (process, bool) {
	m := processName.FindStringSubmatch(info.ID)
	if m == nil {
		return process{}, false
	}
	pid, err := strconv.ParseUint(m[1], 10, 32)
	if err != nil {
		return process{}, false
	}
	p := process{pid: uint32(pid), ExecInfo: info}
	if m[2] != "" {
		tag, err := tagEncoding.DecodeString(strings.ToUpper(m[2]))
		if err != nil {
			return process{}, false
		}
		text := text(string(tag))
		p.tag = &text
	}
	return p, true
}

// processes are the commands of the request's sandbox that came in this way, in
// the order in which they were started.
func (x *exchange) processes(ctx context.Context) ([]process, error) {
	infos, err := x.handle.List(ctx)
	if err != nil {
		return nil, err
	}
	var all []process
	for _, info := range infos {
		if p, ok := processOf(info); ok {
			all = append(all, p)
		}
	}
	return all, nil
}

// describe says what a command is. Variables are not known any more.
func (p process) describe() *pb.ProcessInfo {
	argv, dir := p.Argv, path.Join(execenv.Workspace, p.Dir)
	if at, rest, ok := leaveDirectory(argv); ok {
		argv, dir = rest, at
	}
	config := &pb.ProcessConfig{Cwd: &dir}
	for i, arg := range argv {
		if i == 0 {
			config.Cmd = text(arg)
		} else {
			config.Args = append(config.Args, text(arg))
		}
	}
	dir = text(dir)
	return &pb.ProcessInfo{Config: config, Pid: p.pid, Tag: p.tag}
}

// found is a command that a client has named.
type found struct {
	execenv.Exec
	process
}

// findRunning attaches to the command that a selector names. One that has ended
// is none to these clients.
func (x *exchange) findRunning(ctx context.Context, which *pb.ProcessSelector) (found, error) {
	all, err := x.processes(ctx)
	if err != nil {
		return found{}, err
	}
	for _, p := range slices.Backward(all) {
		if !p.is(which) || p.ended() {
			continue
		}
		exec, err := x.handle.Attach(ctx, p.name())
		return found{exec, p}, err
	}
	return found{}, fault.New(fault.NotFound, "there is no such process, or it has ended")
}

func (p process) is(which *pb.ProcessSelector) bool {
	switch s := which.GetSelector().(type) {
	case *pb.ProcessSelector_Pid:
		return p.pid == s.Pid
	case *pb.ProcessSelector_Tag:
		return p.tag != nil && *p.tag == s.Tag
	}
	return false
}

// A directory that is not in the workspace is entered by env, which the image
// must have.
const enterDirectory = "--chdir="

func inDirectory(dir string, argv []string) []string {
	return append([]string{"/usr/bin/env", enterDirectory + dir, "--"}, argv...)
}

func leaveDirectory(argv []string) (dir string, rest []string, ok bool) {
	if len(argv) < 4 || argv[0] != "/usr/bin/env" || argv[2] != "--" {
		return "", nil, false
	}
	dir, ok = strings.CutPrefix(argv[1], enterDirectory)
	return dir, argv[3:], ok
}

func withVariable(env map[string]string, name, value string) map[string]string {
	with := maps.Clone(env)
	if with == nil {
		with = map[string]string{}
	}
	with[name] = value
	return with
}
