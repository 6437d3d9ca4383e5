package policy

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/agentdock/agentdock/internal/egress/address"
)

// DefaultFile is where the file is that an operator edits.
const DefaultFile = "/etc/agentdock/network.conf"

// builtIn is the same file as it is shipped.
//
//go:embed network.conf
var builtIn string

// File is what an operator decided: presets by name, and mirrors.
type File struct {
	presets map[string][]string
	mirrors []Mirror
}

// Mirror lets a name lead to networks that are not public.
type Mirror struct {
	// Name is in its one spelling.
	Name     string
	Networks []netip.Prefix
}

// Open reads the operator's file. Without one, what is shipped holds; with one,
// only it does.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Parse(strings.NewReader(builtIn))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read what may be reached: %w", err)
	}
	defer f.Close()
	file, err := Parse(f)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	return file, nil
}

const (
	maxFile = 1 << 20
	maxLine = 16 << 10
)

// Parse reads lines "preset NAME SERVER…", of which those with one name add up,
// and "mirror SERVER NETWORK…". What stands behind # is for people.
func Parse(r io.Reader) (*File, error) {
	f := &File{presets: map[string][]string{}}
	lines := bufio.NewScanner(io.LimitReader(r, maxFile+1))
	lines.Buffer(nil, maxLine)
	n, size := 0, 0
	for lines.Scan() {
		n++
		if size += len(lines.Text()) + 1; size > maxFile {
			return nil, fmt.Errorf("it is larger than %d bytes", maxFile)
		}
		text, _, _ := strings.Cut(lines.Text(), "#")
		if err := f.line(strings.Fields(text)); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", n+1, err)
	}
	return f, nil
}

func (f *File) line(words []string) error {
	switch {
	case len(words) == 0:
		return nil
	case len(words) < 3 || words[0] != "preset" && words[0] != "mirror":
		return errors.New("write preset NAME SERVER… or mirror SERVER NETWORK…")
	case words[0] == "mirror":
		return f.mirror(words[1], words[2:])
	}
	for _, w := range words[2:] {
		r, err := ParseRule(w)
		if err != nil {
			return err
		}
		f.presets[words[1]] = append(f.presets[words[1]], r.String())
	}
	return nil
}

func (f *File) mirror(name string, networks []string) error {
	host, err := address.Host(name)
	if err != nil {
		return fmt.Errorf("mirror %s %w", quote(name), err)
	}
	m := Mirror{Name: host}
	for _, text := range networks {
		p, err := netip.ParsePrefix(text)
		if err != nil || p != p.Masked() {
			return fmt.Errorf("%s is no network; write it as 10.1.0.0/16", quote(text))
		}
		m.Networks = append(m.Networks, p)
	}
	f.mirrors = append(f.mirrors, m)
	return nil
}

// Preset returns the servers of a preset.
func (f *File) Preset(name string) ([]string, error) {
	if servers, ok := f.presets[name]; ok {
		return slices.Clone(servers), nil
	}
	return nil, fmt.Errorf("there is no preset %s; there are %s", quote(name), strings.Join(f.Presets(), ", "))
}

// Presets names all there are.
func (f *File) Presets() []string { return slices.Sorted(maps.Keys(f.presets)) }

// Networks are those that a host, in its one spelling, may lead to besides public
// addresses.
func (f *File) Networks(host string) []netip.Prefix {
	var all []netip.Prefix
	for _, m := range f.mirrors {
		if m.Name == host {
			all = append(all, m.Networks...)
		}
	}
	return all
}
