package control

import (
	"slices"
	"strings"
)

// wrapper says how a program that runs another one reads its arguments. What
// the table does not know is not guessed: then every argument is looked at.
type wrapper struct {
	// values are the short options that take one, and flags those that do not.
	values, flags string
	// longValues and longFlags are the same for long ones.
	longValues, longFlags []string
	// operands come before the command.
	operands int
	// assignments may stand before the command, as NAME=value.
	assignments bool
	// optional are short options whose value, if any, is in the same argument.
	optional string
	// split is the option whose value is a command line, for env.
	split string
	// starts are options with which it starts a shell, and alone says that it
	// does so when it is given no command.
	starts []string
	alone  bool
	// digits may be an option, as in nice -5.
	digits bool
}

var wrappers = map[string]wrapper{
	"env": {values: "uCa", flags: "i0v", longValues: []string{"unset", "chdir", "argv0"},
		longFlags: []string{"ignore-environment", "null", "debug", "block-signal", "default-signal", "ignore-signal", "list-signal-handling"},
		split:     "S", assignments: true},
	"nice":  {values: "n", longValues: []string{"adjustment"}, digits: true},
	"nohup": {},
	"timeout": {values: "ks", flags: "vfp", longValues: []string{"kill-after", "signal"},
		longFlags: []string{"verbose", "foreground", "preserve-status"}, operands: 1},
	"stdbuf": {values: "ioe", longValues: []string{"input", "output", "error"}},
	"setsid": {flags: "cfw", longFlags: []string{"ctty", "fork", "wait"}},
	"xargs": {values: "adEILnPs", flags: "0oprtx", optional: "eil",
		longValues: []string{"arg-file", "delimiter", "max-args", "max-procs", "max-chars", "process-slot-var"},
		longFlags:  []string{"null", "eof", "replace", "max-lines", "open-tty", "interactive", "no-run-if-empty", "verbose", "exit", "show-limits"}},
	"sudo": {values: "CDghpRrtTuU", flags: "ABbEHknPSv", assignments: true,
		longValues: []string{"close-from", "chdir", "group", "host", "prompt", "chroot", "role", "type", "command-timeout", "user", "other-user"},
		longFlags:  []string{"askpass", "background", "preserve-env", "set-home", "non-interactive", "stdin", "reset-timestamp", "preserve-groups"},
		starts:     []string{"-s", "-i", "--shell", "--login"}},
	"doas": {values: "aCu", flags: "Ln", starts: []string{"-s"}},
	"time": {values: "fo", flags: "apvqV", longValues: []string{"format", "output"}, longFlags: []string{"append", "portability", "verbose", "quiet"}},
	"chroot": {longValues: nil, longFlags: []string{"skip-chdir", "userspec", "groups"},
		operands: 1, alone: true},
	"taskset": {flags: "ac", longFlags: []string{"all-tasks", "cpu-list"}, operands: 1},
	"ionice":  {values: "cn", flags: "t", longValues: []string{"class", "classdata"}, longFlags: []string{"ignore"}},
	"chrt":    {values: "TPD", flags: "abfiordRv", operands: 1},
	"flock": {values: "wE", flags: "sxneuoFv", longValues: []string{"wait", "timeout", "conflict-exit-code"},
		longFlags: []string{"shared", "exclusive", "nonblock", "nb", "unlock", "close", "no-fork", "verbose"},
		operands:  1, starts: []string{"-c", "--command"}},
	"unshare": {flags: "mniupUCTfrc", alone: true},
	"nsenter": {values: "tSG", optional: "mnipuUCTrw", flags: "aFZ", alone: true},
	"command": {flags: "pvV"},
	"builtin": {},
	"exec":    {values: "a", flags: "cl"},
}

// opaque are wrappers that are rare, or read their arguments in ways of their
// own; some start a shell to run their arguments.
var opaque = map[string]bool{
	"strace": true, "ltrace": true, "gdb": true, "valgrind": true, "perf": true, "catchsegv": true, "numactl": true,
	"prlimit": true, "setpriv": true, "choom": true, "setarch": true, "linux32": true, "linux64": true, "i386": true, "x86_64": true,
	"uname26": true, "tini": true, "dumb-init": true, "gosu": true, "su-exec": true, "chpst": true, "softlimit": true, "setuidgid": true,
	"watch": true, "parallel": true, "entr": true, "xvfb-run": true, "dbus-run-session": true, "fakeroot": true, "faketime": true,
	"proot": true, "bwrap": true, "firejail": true, "pkexec": true, "systemd-run": true, "start-stop-daemon": true,
	"unbuffer": true, "expect": true, "screen": true, "tmux": true, "socat": true, "nc": true, "ncat": true, "ssh": true,
	"cgexec": true, "schroot": true, "eatmydata": true, "torsocks": true, "proxychains": true, "rlwrap": true, "cpulimit": true,
	"run-parts": true, "sem": true, "ts": true, "uv": true, "npx": true, "pipx": true, "poetry": true, "nix-shell": true,
}

// look goes through the arguments up to the command, and looks at that.
func (w wrapper) look(name string, args []string, depth int) string {
	for len(args) > 0 {
		arg := args[0]
		switch {
		case arg == "--":
			args = args[1:]
			return w.command(name, args, depth, false)
		case slices.Contains(w.starts, arg):
			return name + " " + arg
		case arg == "-" && w.split != "": // env's short form of -i
			args = args[1:]
		case strings.HasPrefix(arg, "--"):
			used, line, known := w.long(args)
			if line != "" {
				return splitLine(name, line, args[used:], depth)
			}
			if !known {
				return anyShell(args)
			}
			args = args[used:]
		case strings.HasPrefix(arg, "-") && len(arg) > 1:
			used, line, shell, known := w.short(args)
			switch {
			case shell:
				return name + " " + arg
			case line != "":
				return splitLine(name, line, args[used:], depth)
			case !known:
				return anyShell(args)
			}
			args = args[used:]
		default:
			return w.command(name, args, depth, true)
		}
	}
	return w.command(name, nil, depth, false)
}

// long reads one long option: how many arguments it is, and the command line
// that is its value.
func (w wrapper) long(args []string) (used int, line string, known bool) {
	option, value, has := strings.Cut(strings.TrimPrefix(args[0], "--"), "=")
	// Long options may be shortened; each that could be meant counts.
	isIn := func(names []string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return option != "" && strings.HasPrefix(n, option) })
	}
	if w.split != "" && option != "" && strings.HasPrefix("split-string", option) {
		if has {
			return 1, value + " ", true
		}
		return min(2, len(args)), strings.Join(args[1:min(2, len(args))], "") + " ", true
	}
	takes, flag := isIn(w.longValues), isIn(w.longFlags)
	switch {
	case takes && flag: // which one is meant is not known here
		return 0, "", false
	case takes && !has:
		return min(2, len(args)), "", true
	case takes, flag:
		return 1, "", true
	}
	return 0, "", false
}

// short reads one argument of short options.
func (w wrapper) short(args []string) (used int, line string, shell, known bool) {
	options := args[0][1:]
	if w.digits && strings.Trim(options, "-+0123456789") == "" {
		return 1, "", false, true
	}
	for i, o := range options {
		rest := options[i+1:]
		switch {
		case slices.Contains(w.starts, "-"+string(o)):
			return 1, "", true, true
		case string(o) == w.split && w.split != "":
			if rest != "" {
				return 1, rest + " ", false, true
			}
			return min(2, len(args)), strings.Join(args[1:min(2, len(args))], "") + " ", false, true
		case strings.ContainsRune(w.optional, o):
			return 1, "", false, true
		case strings.ContainsRune(w.values, o):
			if rest != "" {
				return 1, "", false, true
			}
			return min(2, len(args)), "", false, true
		case !strings.ContainsRune(w.flags, o):
			return 0, "", false, false
		}
	}
	return 1, "", false, true
}

// command looks at what is left after the options.
func (w wrapper) command(name string, args []string, depth int, more bool) string {
	if w.assignments {
		for len(args) > 0 && strings.Contains(args[0], "=") {
			args = args[1:]
		}
	}
	args = args[min(w.operands, len(args)):]
	// Some read options after the operands too.
	if more && w.operands > 0 && len(args) > 0 && strings.HasPrefix(args[0], "-") {
		rest := w
		rest.operands = 0
		return rest.look(name, args, depth)
	}
	if len(args) == 0 {
		if w.alone {
			return name
		}
		return ""
	}
	return findShell(args, depth+1)
}

// splitLine looks at a command line as env -S takes it apart. Quotes and escapes
// are read as the ends of words: that finds what is there, and more.
func splitLine(name, line string, rest []string, depth int) string {
	if strings.Contains(line, "$") {
		return name + " -S with a variable"
	}
	// A word may be quoted in pieces: s'h' is sh.
	joined := strings.NewReplacer(`"`, "", `'`, "", `\`, "").Replace(line)
	if shell := wrappers["env"].look("env", append(strings.Fields(joined), rest...), depth+1); shell != "" {
		return shell
	}
	apart := strings.NewReplacer(`"`, " ", `'`, " ", `\_`, " ", `\t`, " ", `\n`, " ", `\v`, " ", `\f`, " ", `\r`, " ", `\`, " ").Replace(line)
	if shell := anyShell(strings.Fields(apart)); shell != "" {
		return shell
	}
	return wrappers["env"].look("env", append(strings.Fields(apart), rest...), depth+1)
}
