package ingest

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/agentdock/agentdock/internal/fault"
)

// distribution is the host's own, which the default image is made from: its
// mirrors and keys are there already, so none has to be named here.
type distribution struct {
	id       string // debian or ubuntu
	codename string
}

func (d distribution) String() string { return d.id + " " + d.codename }

// hostDistribution reads etc/os-release below root.
func hostDistribution(root fs.FS) (distribution, error) {
	data, err := fs.ReadFile(root, "etc/os-release")
	if err != nil {
		return distribution{}, fault.Wrap(fault.Unsupported, err, "cannot find out the host's distribution")
	}
	values := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			values[key] = strings.Trim(value, `"'`)
		}
	}
	d := distribution{id: values["ID"], codename: values["VERSION_CODENAME"]}
	if d.id != "debian" && d.id != "ubuntu" || !plainWord(d.codename) {
		return distribution{}, fault.New(fault.Unsupported, "cannot build the default image on %q: this needs Debian or Ubuntu "+
			"with a release name; elsewhere build infrastructure/sandbox/Dockerfile, `docker save` it and use `agentdock image import`", values["ID"])
	}
	return d, nil
}

func plainWord(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !(r >= 'a' && r <= 'z') })
}

// aptSource is one archive of packages.
type aptSource struct {
	uris, suites, components []string
	signedBy                 string
}

// archiveSources reads the host's package sources, in both of apt's formats,
// and returns those of the distribution itself. What third parties offer is
// left out: the default image does not need it, and it may not be reachable
// or signed by a key the image knows.
func archiveSources(root fs.FS, d distribution) ([]aptSource, error) {
	files := []string{"etc/apt/sources.list"}
	for _, pattern := range []string{"etc/apt/sources.list.d/*.list", "etc/apt/sources.list.d/*.sources"} {
		more, err := fs.Glob(root, pattern)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	var sources []aptSource
	for _, file := range files {
		data, err := fs.ReadFile(root, file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read package sources: %w", err)
		}
		parse := parseOneLine
		if path.Ext(file) == ".sources" {
			parse = parseDeb822
		}
		for _, s := range parse(string(data)) {
			if s, ok := s.ofArchive(root, d); ok {
				sources = append(sources, s)
			}
		}
	}
	hasBase := slices.ContainsFunc(sources, func(s aptSource) bool { return slices.Contains(s.suites, d.codename) })
	if !hasBase {
		return nil, fault.New(fault.Unsupported, "cannot build the default image: the host's /etc/apt names no source for %s; "+
			"add one, or name a file of sources with --sources", d)
	}
	return sources, nil
}

// ofArchive reduces s to what belongs to the distribution: its own suites and
// free components, signed by its own key where a key is named.
func (s aptSource) ofArchive(root fs.FS, d distribution) (aptSource, bool) {
	if s.signedBy != "" && !strings.HasPrefix(path.Base(s.signedBy), d.id+"-archive-") {
		return s, false
	}
	keep := func(list []string, wanted ...string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(v string) bool { return !slices.Contains(wanted, v) })
	}
	s.suites = keep(s.suites, d.codename, d.codename+"-updates", d.codename+"-security")
	s.components = keep(s.components, "main", "universe")
	var uris []string
	for _, uri := range s.uris {
		uris = append(uris, expandMirrors(root, uri)...)
	}
	s.uris = uris
	return s, len(s.suites) > 0 && slices.Contains(s.components, "main") && len(s.uris) > 0
}

// expandMirrors returns the URIs to fetch from: those of a mirror list for
// "mirror+file:", none for media that are not there during a build.
func expandMirrors(root fs.FS, uri string) []string {
	scheme, rest, _ := strings.Cut(uri, ":")
	switch scheme {
	case "http", "https", "file", "copy":
		return []string{uri}
	case "mirror+file":
		data, err := fs.ReadFile(root, strings.TrimLeft(rest, "/"))
		if err != nil {
			return nil
		}
		var list []string
		for line := range strings.Lines(string(data)) {
			line, _, _ = strings.Cut(line, "#")
			if fields := strings.Fields(line); len(fields) > 0 {
				list = append(list, fields[0])
			}
		}
		return list[:min(len(list), 1)] // apt would treat more as further archives
	}
	return nil
}

// parseOneLine reads lines such as "deb [options] uri suite component...".
func parseOneLine(text string) []aptSource {
	var sources []aptSource
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb ")
		if !ok {
			continue
		}
		var s aptSource
		rest = strings.TrimSpace(rest)
		if options, after, ok := strings.Cut(strings.TrimPrefix(rest, "["), "]"); ok && strings.HasPrefix(rest, "[") {
			for _, option := range strings.Fields(options) {
				if key, value, _ := strings.Cut(option, "="); strings.EqualFold(key, "signed-by") {
					s.signedBy = value
				}
			}
			rest = after
		}
		fields := strings.Fields(rest)
		if len(fields) < 3 {
			continue // a flat repository has no components, and is no archive
		}
		s.uris, s.suites, s.components = fields[:1], fields[1:2], fields[2:]
		sources = append(sources, s)
	}
	return sources
}

// parseDeb822 reads stanzas of "Key: value" lines.
func parseDeb822(text string) []aptSource {
	var sources []aptSource
	stanza, last := map[string]string{}, ""
	end := func() {
		if slices.Contains(strings.Fields(stanza["types"]), "deb") && !strings.EqualFold(strings.TrimSpace(stanza["enabled"]), "no") {
			sources = append(sources, aptSource{
				uris:       strings.Fields(stanza["uris"]),
				suites:     strings.Fields(stanza["suites"]),
				components: strings.Fields(stanza["components"]),
				signedBy:   strings.TrimSpace(stanza["signed-by"]),
			})
		}
		stanza, last = map[string]string{}, ""
	}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			end()
		case line[0] == ' ' || line[0] == '\t':
			stanza[last] += "\n" + line
		default:
			key, value, _ := strings.Cut(line, ":")
			last = strings.ToLower(strings.TrimSpace(key))
			stanza[last] = value
		}
	}
	end()
	return sources
}

// deb822 writes sources for mmdebstrap.
func deb822(sources []aptSource) string {
	var b strings.Builder
	for _, s := range sources {
		fmt.Fprintf(&b, "Types: deb\nURIs: %s\nSuites: %s\nComponents: %s\n",
			strings.Join(s.uris, " "), strings.Join(s.suites, " "), strings.Join(s.components, " "))
		if s.signedBy != "" {
			fmt.Fprintf(&b, "Signed-By: %s\n", s.signedBy)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// hostRoot is the host's file system, for reading its configuration.
func hostRoot() fs.FS { return os.DirFS("/") }
