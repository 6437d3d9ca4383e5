package control

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// FindShell says which shell a command runs, as far as its arguments show, or
// "" (REQUIREMENTS B8).
//
// This is policy and no boundary. It keeps callers from handing over text that
// a shell takes apart, where quoting is what decides what runs. It does not
// look at what is in the sandbox: a shell under another name, a script, an
// interpreter (python3 -c), or a tool that starts a shell by itself (make) runs
// one all the same. What a command can do is bounded by the sandbox alone.
func FindShell(argv []string) string { return findShell(argv, 0) }

// maxWrappers is how deep wrappers may nest. What is deeper is refused: nobody
// needs it, and a limit that gives up must not give way.
const maxWrappers = 16

var shells = map[string]bool{
	"sh": true, "bash": true, "dash": true, "zsh": true, "ksh": true, "mksh": true, "pdksh": true, "lksh": true, "oksh": true,
	"ash": true, "hush": true, "fish": true, "csh": true, "tcsh": true, "yash": true, "posh": true, "osh": true, "sash": true,
	"rbash": true, "rksh": true, "rzsh": true, "es": true, "rc": true, "elvish": true, "xonsh": true, "nu": true, "pwsh": true,
	// These start the user's shell.
	"su": true, "login": true, "runuser": true, "script": true, "newgrp": true, "sg": true, "capsh": true,
}

// versioned is a name with a version after it, such as bash-5.2 or ksh93.
var versioned = regexp.MustCompile(`^(.*?[a-z])[-.]?[0-9][0-9.]*$`)

func shellName(program string) string {
	name := path.Base(program)
	if shells[name] {
		return name
	}
	name = strings.TrimSuffix(name, ".distrib")
	if m := versioned.FindStringSubmatch(name); m != nil {
		name = m[1]
	}
	if shells[name] {
		return path.Base(program)
	}
	return ""
}

func findShell(argv []string, depth int) string {
	if len(argv) == 0 {
		return ""
	}
	if depth > maxWrappers {
		return path.Base(argv[0])
	}
	if name := shellName(argv[0]); name != "" {
		return name
	}
	name := path.Base(argv[0])
	rest := argv[1:]
	switch {
	case name == "find":
		return findExec(rest, depth)
	case name == "git":
		return gitShell(rest, depth)
	case name == "busybox", name == "toybox":
		return findShell(rest, depth+1)
	case opaque[name], name == "ld.so", strings.HasPrefix(name, "ld-linux"), strings.HasPrefix(name, "ld-musl"), strings.HasPrefix(name, "qemu-"):
		return anyShell(rest)
	}
	if w, ok := wrappers[name]; ok {
		return w.look(name, rest, depth)
	}
	return ""
}

// anyShell looks at every argument: for wrappers that are not taken apart, where
// a word too many is better than one too few.
func anyShell(args []string) string {
	for _, a := range args {
		if name := shellName(a); name != "" {
			return name
		}
	}
	return ""
}

// findExec looks at what find runs.
func findExec(args []string, depth int) string {
	for i, a := range args {
		if !slices.Contains([]string{"-exec", "-execdir", "-ok", "-okdir"}, a) {
			continue
		}
		if name := findShell(args[i+1:], depth+1); name != "" {
			return name
		}
	}
	return ""
}

// gitShell looks for what git runs by itself: settings that are commands, and
// the arguments of the subcommands that run some.
func gitShell(args []string, depth int) string {
	if name := gitAlias(args); name != "" {
		return name
	}
	for i, a := range args {
		switch {
		case a == "submodule" && slices.Contains(args[i:], "foreach"), a == "filter-branch":
			return "git " + a
		case a == "rebase" && slices.ContainsFunc(args[i:], func(b string) bool {
			return strings.HasPrefix(b, "--exec") || strings.HasPrefix(b, "-x")
		}):
			return "git rebase --exec"
		case a == "bisect" && i+1 < len(args) && args[i+1] == "run":
			return findShell(args[i+2:], depth+1)
		}
	}
	return ""
}

// gitAlias looks for settings in the arguments of git that are shell commands.
func gitAlias(args []string) string {
	for i, a := range args {
		setting := ""
		if a == "-c" && i+1 < len(args) {
			setting = args[i+1]
		} else if after, ok := strings.CutPrefix(a, "-c"); ok {
			setting = after
		} else {
			continue
		}
		key, value, _ := strings.Cut(setting, "=")
		key = strings.ToLower(key)
		if strings.HasPrefix(strings.TrimSpace(value), "!") || gitRuns(key) {
			return "git -c " + key
		}
	}
	return ""
}

// gitRuns reports whether git hands the value of a setting to a shell.
func gitRuns(key string) bool {
	section, rest, _ := strings.Cut(key, ".")
	switch {
	case slices.Contains([]string{"core.pager", "core.editor", "core.sshcommand", "core.askpass", "core.fsmonitor", "core.gitproxy",
		"sequence.editor", "diff.external", "gpg.program", "uploadpack.packobjectshook"}, key):
		return true
	case section == "pager":
		return rest != ""
	case section == "filter", section == "diff", section == "difftool", section == "merge", section == "mergetool":
		for _, end := range []string{".clean", ".smudge", ".process", ".textconv", ".command", ".driver", ".cmd"} {
			if strings.HasSuffix(rest, end) {
				return true
			}
		}
	case section == "credential":
		return strings.HasSuffix(rest, "helper")
	}
	return false
}
