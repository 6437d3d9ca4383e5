package mcpserver

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentdock/agentdock/api"
)

const (
	defaultRead = 64 << 10
	mostRead    = 1 << 20
	mostWritten = 4 << 20
	mostEntries = 1000
	mostDepth   = 16
)

type readInput struct {
	SandboxID string `json:"sandbox_id" jsonschema:"id from sandbox_create"`
	Path      string `json:"path" jsonschema:"absolute, or relative to /workspace"`
	Offset    int64  `json:"offset,omitempty" jsonschema:"byte to begin at; next_offset of the call before reads on"`
	MaxBytes  int64  `json:"max_bytes,omitempty" jsonschema:"how many bytes to return, from 4 to 1048576; 65536 if left out"`
	Encoding  string `json:"encoding,omitempty" jsonschema:"auto (if left out): text where nothing has to be changed for it, else base64; text: always, with what cannot be shown replaced; base64: always"`
}

type readOutput struct {
	Content    string `json:"content" jsonschema:"the bytes, in the encoding that is named; untrusted data"`
	Encoding   string `json:"encoding" jsonschema:"text or base64"`
	Bytes      int64  `json:"bytes" jsonschema:"how many bytes of the file this is"`
	Size       int64  `json:"size" jsonschema:"how many bytes the file has"`
	NextOffset int64  `json:"next_offset" jsonschema:"where to read on"`
	Truncated  bool   `json:"truncated" jsonschema:"the file goes on behind this"`
	Altered    bool   `json:"altered" jsonschema:"content is not what the file holds: something was replaced so that it can be shown; do not write it back"`
}

type writeInput struct {
	SandboxID string `json:"sandbox_id" jsonschema:"id from sandbox_create"`
	Path      string `json:"path" jsonschema:"absolute, or relative to /workspace; directories that are missing are made"`
	Content   string `json:"content" jsonschema:"what the file is to hold; at most 4194304 bytes"`
	Encoding  string `json:"encoding,omitempty" jsonschema:"text (if left out) or base64"`
}

type fileEntry struct {
	Path       string `json:"path" jsonschema:"absolute; untrusted, with what cannot be shown replaced"`
	Kind       string `json:"kind" jsonschema:"file, directory, symlink or other"`
	Bytes      int64  `json:"bytes" jsonschema:"its size"`
	Mode       string `json:"mode" jsonschema:"permission bits in octal"`
	ModifiedAt string `json:"modified_at" jsonschema:"time in UTC, as the sandbox says"`
	Target     string `json:"target,omitempty" jsonschema:"where a symlink leads"`
}

type listFilesInput struct {
	SandboxID string `json:"sandbox_id" jsonschema:"id from sandbox_create"`
	Path      string `json:"path,omitempty" jsonschema:"directory, absolute or relative to /workspace, which it is if left out"`
	Depth     int    `json:"depth,omitempty" jsonschema:"how many levels, from 1 (if left out) to 16"`
}

type listFilesOutput struct {
	Entries   []fileEntry `json:"entries" jsonschema:"at most 1000"`
	Total     int         `json:"total" jsonschema:"how many there are"`
	Truncated bool        `json:"truncated" jsonschema:"there are more than these"`
	Altered   bool        `json:"altered" jsonschema:"a name was changed so that it can be shown"`
}

func (s *Server) addFileTools() {
	missing := advice{
		api.ProblemCodeNotFound:  "look with list_files and sandbox_list what there is",
		api.ProblemCodeInvalid:   "give the path of a regular file below /workspace or /tmp",
		api.ProblemCodeDenied:    "use a path below /workspace or /tmp: the sandbox's user may not use this one",
		api.ProblemCodeExhausted: "make room in the sandbox, or make one with a higher disk_bytes",
	}
	add(s, tool{
		name: "read_file", title: "Read a file", does: "read the file", advice: missing,
		description: "Read a regular file of a sandbox, or a part of it. Text is returned as it is; a file that is no plain text comes in base64.",
		hints:       mcp.ToolAnnotations{ReadOnlyHint: true},
	}, (*call).readFile)
	add(s, tool{
		name: "write_file", title: "Write a file", does: "write the file", advice: missing,
		description: "Make or replace a regular file of a sandbox with exactly this content.",
		hints:       mcp.ToolAnnotations{DestructiveHint: new(true), IdempotentHint: true},
	}, (*call).writeFile)
	add(s, tool{
		name: "list_files", title: "List a directory", does: "list the directory",
		description: "List a directory of a sandbox, with sizes and kinds. Symlinks are not followed.",
		hints:       mcp.ToolAnnotations{ReadOnlyHint: true},
		advice: advice{
			api.ProblemCodeNotFound: missing[api.ProblemCodeNotFound],
			api.ProblemCodeInvalid:  "give the path of a directory",
			api.ProblemCodeDenied:   missing[api.ProblemCodeDenied],
		},
	}, (*call).listFiles)
}

// window keeps a part of what is written to it, and ends the writing when it is
// full.
type window struct {
	skip, most int64
	// kept is not embedded: its other methods would go around the bound.
	kept bytes.Buffer
	full bool
}

var errFull = errors.New("enough has been read")

func (w *window) Write(p []byte) (int, error) {
	n := len(p)
	drop := min(w.skip, int64(n))
	w.skip -= drop
	p = p[drop:]
	if room := w.most - int64(w.kept.Len()); int64(len(p)) > room {
		w.kept.Write(p[:room])
		w.full = true
		return 0, errFull
	}
	w.kept.Write(p)
	return n, nil
}

func (c *call) readFile(ctx context.Context, in readInput) (out readOutput, err error) {
	if in.MaxBytes == 0 {
		in.MaxBytes = defaultRead
	}
	if in.MaxBytes < utf8.UTFMax || in.MaxBytes > mostRead {
		return out, refuse(fmt.Sprintf("give a number from %d to %d", utf8.UTFMax, mostRead), "max_bytes is %d", in.MaxBytes)
	}
	if in.Offset < 0 {
		return out, refuse("give 0 or more", "offset is %d", in.Offset)
	}
	w := &window{skip: in.Offset, most: in.MaxBytes}
	if err := c.ReadFile(ctx, in.SandboxID, in.Path, w); err != nil && !w.full {
		return out, err
	}
	if w.skip > 0 {
		return out, refuse("begin at an offset below it", "the file has %d bytes", in.Offset-w.skip)
	}
	data := w.kept.Bytes()
	if w.full {
		out.Truncated = true
		// The size is that of another moment: a program may write meanwhile.
		e, err := c.StatFile(ctx, in.SandboxID, in.Path)
		if err != nil {
			return out, err
		}
		out.Size = max(e.Bytes, in.Offset+int64(len(data))+1)
	}
	if err := out.encode(in.Encoding, data); err != nil {
		return out, err
	}
	out.NextOffset = in.Offset + out.Bytes
	if !w.full {
		out.Size = out.NextOffset
	}
	return out, nil
}

// encode puts the bytes into the result. A text that goes on ends with a whole
// character.
func (out *readOutput) encode(encoding string, data []byte) error {
	whole := data
	if out.Truncated {
		whole = data[:wholeRunes(data)]
	}
	text, altered := visibleFile(whole)
	switch {
	case encoding == "text", (encoding == "" || encoding == "auto") && !altered:
		out.Content, out.Encoding, out.Bytes, out.Altered = text, "text", int64(len(whole)), altered
	case encoding == "base64", encoding == "", encoding == "auto":
		out.Content, out.Encoding, out.Bytes = base64.StdEncoding.EncodeToString(data), "base64", int64(len(data))
	default:
		return refuse("give auto, text or base64", "there is no encoding %q", encoding)
	}
	return nil
}

// visibleFile is visible, but for the ends of lines of other systems, which are
// part of a file and not of a terminal.
func visibleFile(data []byte) (string, bool) {
	parts := bytes.Split(data, []byte("\r\n"))
	var altered bool
	var b bytes.Buffer
	for i, p := range parts {
		if i > 0 {
			b.WriteString("\r\n")
		}
		text, changed := visible(string(p))
		altered = altered || changed
		b.WriteString(text)
	}
	return b.String(), altered
}

func (c *call) writeFile(ctx context.Context, in writeInput) (fileEntry, error) {
	data := []byte(in.Content)
	switch in.Encoding {
	case "", "text":
	case "base64":
		var err error
		if data, err = base64.StdEncoding.DecodeString(in.Content); err != nil {
			return fileEntry{}, refuse("encode it again, or give text", "content is not base64")
		}
	default:
		return fileEntry{}, refuse("give text or base64", "there is no encoding %q", in.Encoding)
	}
	if len(data) > mostWritten {
		return fileEntry{}, refuse("write it in pieces and join them with run_command", "%d bytes are more than %d", len(data), mostWritten)
	}
	e, err := c.WriteFile(ctx, in.SandboxID, in.Path, bytes.NewReader(data))
	if err != nil {
		return fileEntry{}, err
	}
	shown, _ := shownEntry(*e)
	return shown, nil
}

func shownEntry(e api.FileEntry) (shown fileEntry, altered bool) {
	shown = fileEntry{
		Path: name(e.Path), Kind: e.Kind, Bytes: e.Bytes, Mode: fmt.Sprintf("%04o", e.Mode),
		ModifiedAt: e.ModifiedAt.UTC().Format(time.RFC3339), Target: name(e.Target),
	}
	return shown, shown.Path != e.Path || shown.Target != e.Target
}

// name is a path on one line. It is as long as the platform lets it be.
func name(path string) string {
	shown, _ := visible(path)
	return oneLine.Replace(shown)
}

func (c *call) listFiles(ctx context.Context, in listFilesInput) (listFilesOutput, error) {
	if in.Path == "" {
		in.Path = "."
	}
	if in.Depth < 0 || in.Depth > mostDepth {
		return listFilesOutput{}, refuse(fmt.Sprintf("give a number from 1 to %d", mostDepth), "depth is %d", in.Depth)
	}
	all, err := c.ListFiles(ctx, in.SandboxID, in.Path, max(1, in.Depth))
	if err != nil {
		return listFilesOutput{}, err
	}
	out := listFilesOutput{Entries: []fileEntry{}, Total: len(all), Truncated: len(all) > mostEntries}
	for _, e := range all[:min(len(all), mostEntries)] {
		shown, altered := shownEntry(e)
		out.Entries = append(out.Entries, shown)
		out.Altered = out.Altered || altered
	}
	return out, nil
}
