package control

import (
	"strings"
	"testing"
)

// words is a command line without quotes; "␣" is a space within an argument.
func words(line string) []string {
	args := strings.Fields(line)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "␣", " ")
	}
	return args
}

func TestShellsAreFound(t *testing.T) {
	for _, line := range []string{
		"sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "csh", "tcsh", "sh -c true",
		"/bin/sh", "/usr/bin/../bin/bash", "./sh", "bin/sh -c id", "../sh", "//bin//bash",
		"bash-5.2 -c id", "ksh93", "zsh-5.9", "sh.distrib", "bash5",
		"busybox sh", "busybox ash -c id", "/bin/busybox hush", "toybox sh", "busybox env sh", "busybox busybox sh",
		"env sh", "/usr/bin/env bash -c id", "env - sh", "env -i sh", "env -i A=1 B=2 sh", "env -u HOME sh", "env -uHOME sh",
		"env --unset HOME sh", "env --unset=HOME sh", "env --uns HOME sh", "env -C /tmp sh", "env --chdir=/ sh", "env -iu HOME sh",
		"env -iv0 sh", "env -- sh", "env -S sh␣-c␣id", "env -Ssh␣-c␣id", "env -iS sh␣-c␣id", "env -vS sh",
		"env --split-string=sh␣-c␣id", "env --split-string sh␣-c␣id", "env --sp sh", "env -S A=1␣sh", "env -S -i␣sh", "env -S 's'h",
		`env -S "sh"`, `env -S \sh`, `env -S x\_sh`, "env -S ${SHELL}", "env -S -i sh", "env -S A=1 sh", "env -S env␣-S␣sh",
		"env --argv0 x sh", "env -a x sh", "env --block-signal=INT sh", "env --ignore-signal sh", "env env env sh", "env --unknown sh",
		"env nice env -i timeout 5 sh",
		"nice sh", "nice -n 5 sh", "nice -n5 sh", "nice -5 sh", "nice --5 sh", "nice --adjustment 5 sh", "nice --adjustment=5 sh",
		"nohup sh", "nohup -- sh", "timeout 5 sh", "timeout -k 3 5 sh", "timeout -k3 5 sh", "timeout -s KILL 5 sh",
		"timeout --signal KILL 5 sh", "timeout --signal=KILL 5 sh", "timeout --foreground 5 sh", "timeout -v 5 sh", "timeout --kill-after=1 5 sh",
		"timeout --bogus 5 sh", "timeout -- 5 sh", "timeout 5 -- sh",
		"stdbuf -o0 sh", "stdbuf -o 0 -e L sh", "stdbuf --output=0 sh", "stdbuf --output 0 sh", "setsid sh", "setsid -w sh", "setsid --wait sh", "setsid -fw sh",
		"xargs sh", "xargs -n 1 sh", "xargs -n1 sh", "xargs -0 -I {} sh -c {}", "xargs -I{} sh", "xargs -i sh", "xargs -l sh", "xargs -P 4 -r sh",
		"xargs --max-args 1 sh", "xargs --max-args=1 sh", "xargs --replace sh", "xargs --replace={} sh", "xargs -a f sh", "xargs -d , sh", "xargs env sh",
		"sudo sh", "sudo -u nobody sh", "sudo -unobody sh", "sudo -s", "sudo -i", "sudo -ns", "sudo --shell", "sudo --login", "sudo -E A=1 sh", "sudo -g x -- sh",
		"doas sh", "doas -s", "doas -u x sh", "time sh", "time -p sh", "time -f %e sh", "/usr/bin/time -o f -a sh",
		"chroot / sh", "chroot /", "chroot --userspec=0:0 / sh", "taskset 1 sh", "taskset -c 0 sh", "taskset -ac 0 sh", "ionice -c 3 sh", "ionice -c3 sh", "ionice -t sh",
		"chrt 1 sh", "chrt -f 1 sh", "flock /tmp/l sh", "flock -n /tmp/l sh", "flock -w 3 /tmp/l sh", "flock /tmp/l -c id", "flock -n /tmp/l --command id",
		"script", "script -c id /dev/null", "script -qec id", "su", "su -c id", "su nobody", "login", "runuser -u x id", "unshare", "unshare -r sh", "unshare --mount sh",
		"nsenter", "nsenter -t 1 sh",
		"strace sh", "strace -f -o x sh", "gdb --args sh", "setpriv --reuid=1 sh", "watch sh", "tini -- sh", "/lib64/ld-linux-x86-64.so.2 /bin/sh",
		"/lib/ld-musl-x86_64.so.1 /bin/sh", "qemu-x86_64 /bin/sh", "setarch -R sh", "linux64 sh",
		"find . -exec sh {} ;", "find . -name x -execdir /bin/bash -c id ;", "find -ok sh ;", "find / -okdir env sh ;", "find . -exec true ; -exec sh ;",
		"find . -exec env -i nice sh +", "git -c alias.x=!id x", "git -c alias.x=␣!id x", "git -calias.x=!id x", "git -C d -c ALIAS.x=!id x",
		"git -c core.sshCommand=id fetch", "git -c core.pager=id log", "git -c pager.log=id log", "git -c filter.x.smudge=id checkout .",
		"git -c diff.external=id diff", "git -c credential.helper=x fetch", "git bisect run sh", "git -C d bisect run env bash -c id",
		"git submodule foreach id", "git submodule --quiet foreach id", "git rebase --exec id main", "git rebase -x id main", "git filter-branch --tree-filter id",
		"ld.so /bin/sh -c id", "capsh -- -c id", "capsh ==",
		strings.Repeat("env ", 100) + "true", // deeper than anybody needs
	} {
		if FindShell(words(line)) == "" {
			t.Errorf("%s: no shell is found", line)
		}
	}
}

func TestOthersAreNotTakenForShells(t *testing.T) {
	for _, line := range []string{
		"true", "go test ./...", "python3 -m unittest", "/usr/bin/python3", "node index.js", "npm test", "make sh", "cat sh", "grep bash file",
		"ls /bin/sh", "shfmt -l .", "shellcheck x.sh", "./run.sh", "bashful", "fishing", "crash", "cargo build", "dotnet test",
		"env", "env A=sh go test", "env -i PATH=/bin true", "env SHELL=/bin/sh make", "env -u SHELL go test", "env -S go␣test", "env -C sh true",
		"timeout 5 go test", "timeout -k 1 5 cat sh", "nice -n 5 grep sh x", "nohup cat bash", "xargs grep sh", "xargs -n 1 cat", "xargs",
		"time go build", "stdbuf -oL cat sh", "flock /tmp/sh true", "find . -name sh", "find . -name *.sh -exec cat {} ;", "find bash -exec grep sh {} +",
		"git status", "git bisect run go test", "git bisect run", "git rebase main", "git submodule update", "git log -- bash", "git add exec", "git -c user.name=x commit", "git log -c", "git -c color.ui=always diff", "git -c", "busybox ls", "busybox", "sudo -u sh true", "taskset -c 0 true",
		"chroot / true", "python3 -c import␣os", "rg sh", "python3.11 x.py", "gcc-12 -o sh x.c",
	} {
		if name := FindShell(words(line)); name != "" {
			t.Errorf("%s: taken for %s", line, name)
		}
	}
}

// What is not seen, and is written down in SECURITY.md as such. If one of these
// is found one day, say so there.
func TestWhatThePolicyDoesNotSee(t *testing.T) {
	for _, line := range []string{
		"python3 -c import␣os;os.system('sh')", "perl -e exec'sh'", "awk BEGIN{system(\"sh\")}", "make", "./configure", "npm run x", "vim -c !sh", "tar --to-command=sh -xf x",
	} {
		if name := FindShell(words(line)); name != "" {
			t.Errorf("%s: found %s; say so in SECURITY.md", line, name)
		}
	}
	if FindShell(nil) != "" {
		t.Error("nothing is a shell")
	}
}

func FuzzFindShell(f *testing.F) {
	f.Add("env -S sh -c id")
	f.Add("timeout --k 5 sh")
	f.Add("find -exec ; -exec")
	f.Fuzz(func(t *testing.T, line string) {
		argv := strings.Split(line, " ")
		FindShell(argv)
		// No wrapper that is given a shell as its whole command hides it.
		for _, wrapper := range []string{"env", "nice", "nohup", "setsid", "stdbuf"} {
			if FindShell([]string{wrapper, "sh"}) == "" {
				t.Errorf("%s sh", wrapper)
			}
		}
		// What is refused alone is refused behind env.
		if name := FindShell(argv); name != "" && !strings.HasPrefix(argv[0], "-") && !strings.Contains(argv[0], "=") {
			if FindShell(append([]string{"env"}, argv...)) == "" {
				t.Errorf("env hides %q", argv)
			}
		}
	})
}
