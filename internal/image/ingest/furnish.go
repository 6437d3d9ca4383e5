package ingest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/agentdock/agentdock/internal/fault"
)

// The user every program in a sandbox runs as.
const (
	agentID   = "10001"
	agentName = "agent"
	agentHome = "/workspace"
)

// mountPoints are the directories the runtime mounts over or needs. A
// read-only image cannot grow them later.
var mountPoints = []struct {
	path  string
	mode  uint32
	empty bool // what the image has there is never seen, so it is left out
}{
	{"dev", 0o755, true},
	{"proc", 0o755, true},
	{"sys", 0o755, true},
	{".agentdock", 0o755, true},
	{"tmp", 0o1777, false},
	{"workspace", 0o755, false},
	{"run", 0o755, false},
	{"home", 0o755, false},
	{"etc", 0o755, false},
}

// furnish adds to any image what the runtime relies on, and takes away what
// would tell the sandbox about the machine the image was made on.
func furnish(root *node, sp *spool) error {
	root.inode = newDirectory().inode
	for _, m := range mountPoints {
		n := root.children[m.path]
		if n == nil || n.kind != directory || m.empty {
			if err := root.unlink(m.path, sp); err != nil {
				return err
			}
			n = newDirectory()
			root.children[m.path] = n
		}
		n.mode, n.uid, n.gid = m.mode, 0, 0
	}
	etc := root.children["etc"]
	shell := "/bin/sh"
	if root.lookup("bin/bash") != nil || root.lookup("usr/bin/bash") != nil {
		shell = "/bin/bash"
	}
	for _, file := range []struct {
		name string
		make func(old []byte) []byte
	}{
		{"passwd", func(old []byte) []byte {
			return withEntry(old, "%s:x:"+agentID+":"+agentID+":AgentDock sandbox user:"+agentHome+":"+shell)
		}},
		{"group", func(old []byte) []byte { return withEntry(old, "%s:x:"+agentID+":") }},
		{"resolv.conf", func([]byte) []byte { return nil }},
		{"hostname", func([]byte) []byte { return []byte("sandbox\n") }},
		{"hosts", func([]byte) []byte {
			return []byte("127.0.0.1\tlocalhost sandbox\n::1\tlocalhost ip6-localhost ip6-loopback\n")
		}},
	} {
		if err := replace(etc, file.name, file.make, sp); err != nil {
			return err
		}
	}
	return nil
}

// maxAccountBytes bounds the account files, which are read into memory.
const maxAccountBytes = 1 << 20

// replace puts a new file in the place of whatever has its name. A new inode
// is made, so neither a symlink's target nor another name of a hard link
// changes; their contents are not read either.
func replace(dir *node, name string, content func(old []byte) []byte, sp *spool) error {
	var old []byte
	if have := dir.children[name]; have != nil && have.kind == regular {
		var err error
		if old, err = sp.read(have.inode, maxAccountBytes); err != nil {
			return fault.Wrap(fault.Invalid, err, "cannot use the image's /etc/%s", name)
		}
	}
	if err := dir.unlink(name, sp); err != nil {
		return err
	}
	data := content(old)
	number, err := sp.put(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	dir.children[name] = &node{inode: &inode{
		kind: regular, mode: 0o644, mtime: epoch, content: number, size: int64(len(data)), links: 1,
	}}
	return nil
}

// withEntry appends an entry for the sandbox's user or group to an account
// file that has none for its id. format takes the entry's name. An entry with
// the id under another name is left as it is: the image means it.
func withEntry(accounts []byte, format string) []byte {
	name := agentName
	for line := range strings.SplitSeq(string(accounts), "\n") {
		fields := strings.Split(line, ":")
		if len(fields) > 2 && fields[2] == agentID {
			return accounts
		}
		if fields[0] == agentName {
			name = "agentdock" // the name is taken by another id
		}
	}
	if len(accounts) == 0 {
		if strings.Count(format, ":") == 3 {
			accounts = []byte("root:x:0:\n")
		} else {
			accounts = []byte("root:x:0:0:root:/root:/bin/sh\n")
		}
	}
	out := slices.Clone(accounts)
	if out[len(out)-1] != '\n' {
		out = append(out, '\n')
	}
	return fmt.Appendf(out, format+"\n", name)
}
