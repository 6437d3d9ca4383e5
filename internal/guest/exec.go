package guest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// FailureFD is where Exec says why a program could not be started. It is closed
// when the program starts.
const FailureFD = 3

// Command is what Exec starts. It carries bytes: gVisor takes a command as
// JSON, which cannot hold an argument that is not UTF-8, so that such a
// command comes in here.
type Command struct {
	Argv, Env [][]byte
	Dir       []byte
}

// NewCommand encodes a command as an argument.
func NewCommand(argv, env []string, dir string) (string, error) {
	raw := func(list []string) [][]byte {
		out := make([][]byte, len(list))
		for i, s := range list {
			out[i] = []byte(s)
		}
		return out
	}
	data, err := json.Marshal(Command{Argv: raw(argv), Env: raw(env), Dir: []byte(dir)})
	return base64.StdEncoding.EncodeToString(data), err
}

// Exec becomes the program that the argument encodes.
func Exec(argument string) error {
	unix.CloseOnExec(FailureFD)
	err := execute(argument)
	failure := os.NewFile(FailureFD, "failure")
	fmt.Fprint(failure, err)
	return err
}

func execute(argument string) error {
	argv, env, dir, err := decode(argument)
	if err != nil {
		return err
	}
	if err := unix.Chdir(dir); err != nil {
		return fmt.Errorf("failed to find initial working directory %q: %w", dir, err)
	}
	if strings.Contains(argv[0], "/") {
		return fmt.Errorf("failed to load %s: %w", argv[0], syscall.Exec(argv[0], argv, env))
	}
	err = error(unix.ENOENT)
	for _, dir := range strings.Split(pathOf(env), ":") {
		if dir == "" {
			dir = "."
		}
		// The first refusal that says more than "not here" is the answer if no
		// later directory has it.
		if e := syscall.Exec(dir+"/"+argv[0], argv, env); !errors.Is(e, unix.ENOENT) && !errors.Is(e, unix.ENOTDIR) {
			err = e
		}
	}
	return fmt.Errorf("failed to load %s: %w", argv[0], err)
}

// decode is the reverse of NewCommand.
func decode(argument string) (argv, env []string, dir string, err error) {
	data, err := base64.StdEncoding.DecodeString(argument)
	if err != nil {
		return nil, nil, "", err
	}
	var c Command
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, nil, "", err
	}
	text := func(list [][]byte) []string {
		out := make([]string, len(list))
		for i, b := range list {
			out[i] = string(b)
		}
		return out
	}
	if len(c.Argv) == 0 {
		return nil, nil, "", errors.New("the command is empty")
	}
	return text(c.Argv), text(c.Env), string(c.Dir), nil
}

func pathOf(env []string) string {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			return v
		}
	}
	return ""
}
