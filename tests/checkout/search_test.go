package checkout

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/testenv"
)

// finds is what was found, by place; and how much was searched.
type finds struct {
	t        *testing.T
	needles  *needles
	found    map[string][]string
	searched map[string]int
	bytes    int64
	// public is a directory of files that are the same for everybody.
	public string
}

func newFinds(t *testing.T, n *needles, public string) *finds {
	return &finds{t: t, needles: n, public: public, found: map[string][]string{}, searched: map[string]int{}}
}

func (f *finds) look(where, name string, data []byte) {
	f.searched[where]++
	f.bytes += int64(len(data))
	for _, what := range f.needles.in(data) {
		f.found[where] = append(f.found[where], fmt.Sprintf("%s (%s)", name, what))
	}
}

// report holds the places to what they must be: searched, and without secrets
// or, as a control, with them.
func (f *finds) report(places []place, control bool) {
	f.t.Helper()
	for _, p := range places {
		f.t.Logf("%s: %d searched, %d found", p.name, f.searched[p.name], len(f.found[p.name]))
		switch found := f.found[p.name]; {
		case control && len(found) == 0:
			f.t.Errorf("%s: what was planted there was not found", p.name)
		case !control && f.searched[p.name] == 0:
			f.t.Errorf("%s: nothing was searched", p.name)
		case !control && len(found) > 0:
			f.t.Errorf("%s: secrets are in %q", p.name, found)
		}
	}
	f.t.Logf("%d bytes were searched for %d pieces of secrets", f.bytes, len(f.needles.pieces))
}

// processes searches every process of the machine.
func (f *finds) processes() {
	for where, file := range map[string]string{"environments": "environ", "arguments": "cmdline"} {
		paths, _ := filepath.Glob("/proc/[0-9]*/" + file)
		for _, p := range paths {
			if data, err := os.ReadFile(p); err == nil { // it may have ended
				f.look(where, p, data)
			}
		}
	}
}

// startedWith searches what a process and those below it were started with.
func (f *finds) startedWith(where string, pid int) {
	for _, p := range append(testenv.Descendants(pid), pid) {
		for _, file := range []string{"environ", "cmdline"} {
			path := fmt.Sprintf("/proc/%d/%s", p, file)
			if data, err := os.ReadFile(path); err == nil {
				f.look(where, path, data)
			}
		}
	}
}

// openFiles searches the regular files that a process and those below it have
// open.
func (f *finds) openFiles(where string, pid int) { f.filesOf(where, pid, "fd") }

// mappedFiles searches those they have mapped: also when they are neither open
// nor have a name any more. The memory of a sandbox is one.
func (f *finds) mappedFiles(where string, pid int) { f.filesOf(where, pid, "map_files") }

func (f *finds) filesOf(where string, pid int, dir string) {
	seen := map[string]bool{}
	for _, p := range append(testenv.Descendants(pid), pid) {
		paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/%s/*", p, dir))
		for _, path := range paths {
			var st unix.Stat_t
			target, _ := os.Readlink(path)
			if unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || strings.HasPrefix(target, f.public) {
				continue
			}
			id := fmt.Sprint(st.Dev, ":", st.Ino)
			if seen[id] {
				continue
			}
			seen[id] = true
			data, err := contents(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue // its process has ended, or closed it
			}
			if err != nil {
				f.t.Errorf("%s: cannot search %s (%s): %v", where, path, target, err)
				continue
			}
			f.look(where, path+" "+target, data)
		}
	}
}

// maxContents is what a file may hold that is searched: what is larger is not
// left out, but fails the test.
const maxContents = 512 << 20

// contents is what a file holds, without its holes: the memory of a sandbox is
// mostly one.
func contents(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	fd := int(file.Fd())
	var all []byte
	for at := int64(0); ; {
		begin, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return all, nil // no more data
		}
		if err != nil { // a file system that knows no holes
			return io.ReadAll(io.LimitReader(file, maxContents))
		}
		end, err := unix.Seek(fd, begin, unix.SEEK_HOLE)
		if err != nil {
			return nil, err
		}
		if int64(len(all))+end-begin > maxContents {
			return nil, errors.New("it holds more than can be searched")
		}
		part := make([]byte, end-begin)
		n, err := file.ReadAt(part, begin)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		all, at = append(all, part[:n]...), end
	}
}

// memory searches the memory that a process can write.
func (f *finds) memory(where string, pid int) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		f.t.Error(err)
		return
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		f.t.Error(err)
		return
	}
	defer mem.Close()
	for lines := bufio.NewScanner(bytes.NewReader(maps)); lines.Scan(); {
		var begin, end int64
		var mode string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &begin, &end, &mode); err != nil || !strings.HasPrefix(mode, "rw") {
			continue
		}
		const piece, overlap = 8 << 20, 4 << 10
		for at := begin; at < end; at += piece {
			data := make([]byte, min(piece+overlap, end-at))
			n, _ := mem.ReadAt(data, at) // what is not there cannot be read
			f.look(where, fmt.Sprintf("memory of %d at %x", pid, at), data[:n])
		}
	}
}

// tree searches the files below a directory, and their names.
func (f *finds) tree(where, root string, except ...string) {
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it went away
		}
		if slices.Contains(except, path) {
			return filepath.SkipDir
		}
		f.look(where, path, []byte(path))
		if d.Type().IsRegular() {
			if data, err := os.ReadFile(path); err == nil {
				f.look(where, path, data)
			}
		}
		return nil
	})
}
