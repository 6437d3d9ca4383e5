// Package filewire is how a host and the guest helper speak about files of a
// live sandbox. The helper is started once for each request, as a command of
// the sandbox:
//
//	agentdock-guest files REQUEST
//
// REQUEST is JSON, and names are bytes in it, because file names are. What the
// helper answers on its standard output is a sequence of records, each a line of
// JSON; a record that announces data is followed by that many bytes. The last
// record is an End. An answer without one was cut.
//
// The helper runs among hostile processes of the same user, which can stop it,
// or speak in its place. So Reader bounds whatever it reads, and believes
// nothing that it can check.
package filewire

import (
	"encoding/json"
	"fmt"
	"time"
)

const (
	// Dir is where the helper is mounted in a sandbox.
	Dir = "/.agentdock"
	// Program is the helper.
	Program = Dir + "/agentdock-guest"
)

// Bounds on both sides.
const (
	MaxPath    = 4096
	MaxName    = 255
	MaxLine    = 64 << 10
	MaxData    = 256 << 10
	MaxMessage = 1024
)

// Op is what is asked for.
type Op string

const (
	Stat    Op = "stat"
	List    Op = "list"
	MakeDir Op = "mkdir"
	Move    Op = "move"
	Remove  Op = "remove"
	Read    Op = "read"
	Write   Op = "write"
	Watch   Op = "watch"
)

// Request is one piece of work.
type Request struct {
	Op   Op     `json:"op"`
	Path []byte `json:"path"`
	// To is where Move moves to.
	To []byte `json:"to,omitempty"`
	// Depth is how many levels List shows; 1 is the directory's own entries.
	Depth int `json:"depth,omitempty"`
	// After is where List goes on: behind the entry of that name.
	After []byte `json:"after,omitempty"`
	// Offset and Length are the part that Read wants. A negative length is
	// everything.
	Offset int64 `json:"offset,omitempty"`
	Length int64 `json:"length,omitempty"`
	// Mode is that of a file that Write makes.
	Mode uint32 `json:"mode,omitempty"`
	// Recursive watches what is below the directory too.
	Recursive bool `json:"recursive,omitempty"`
	// Budget is how many bytes the answer may have: what a sandbox keeps of a
	// command's output is bounded, and the helper stops before it is reached.
	Budget int64 `json:"budget"`
}

// Encode makes the argument of the helper.
func (r Request) Encode() (string, error) {
	data, err := json.Marshal(r)
	return string(data), err
}

// Decode is the reverse of Encode.
func Decode(argument string) (Request, error) {
	var r Request
	if err := json.Unmarshal([]byte(argument), &r); err != nil {
		return Request{}, fmt.Errorf("cannot read the request: %w", err)
	}
	return r, nil
}

// Kind of a file.
type Kind string

const (
	File      Kind = "file"
	Directory Kind = "dir"
	Symlink   Kind = "symlink"
	Other     Kind = "other" // a fifo, socket or device
)

// Entry describes a file.
type Entry struct {
	// Name is relative to the path of the request; empty is that path itself.
	Name []byte `json:"name,omitempty"`
	Kind Kind   `json:"kind"`
	Size int64  `json:"size"`
	// Mode is the permission bits, with setuid, setgid and sticky.
	Mode  uint32    `json:"mode"`
	UID   uint32    `json:"uid"`
	GID   uint32    `json:"gid"`
	MTime time.Time `json:"mtime"`
	Inode uint64    `json:"inode"`
	// Target is what a symlink holds, and TargetKind what is there, if anything.
	Target     []byte `json:"target,omitempty"`
	TargetKind Kind   `json:"target_kind,omitempty"`
}

// EventKind is what happened to a file that is watched.
type EventKind string

const (
	Created  EventKind = "created"
	Written  EventKind = "written"
	Removed  EventKind = "removed"
	Renamed  EventKind = "renamed" // away from this name; the new one is Created
	Changed  EventKind = "changed" // its mode, owner or times
	Overflow EventKind = "overflow"
)

// Event is something that happened below a watched directory. An Overflow has
// no name: events were lost, and whoever needs the truth lists the directory.
type Event struct {
	Kind EventKind `json:"kind"`
	Name []byte    `json:"name,omitempty"`
}

// Code says what a caller can do about a failure.
type Code string

const (
	OK        Code = ""
	Invalid   Code = "invalid"
	NotFound  Code = "not_found"
	Conflict  Code = "conflict"
	Denied    Code = "denied"
	Exhausted Code = "exhausted"
	Failed    Code = "failed"
)

// End is the last record.
type End struct {
	Code    Code   `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// More says that the budget was used up before the work was done.
	More bool `json:"more,omitempty"`
}

// Record is one piece of an answer. One of its fields is set.
type Record struct {
	Entry *Entry `json:"entry,omitempty"`
	// Data is how many bytes follow; Reader puts them into Payload.
	Data    int    `json:"data,omitempty"`
	Payload []byte `json:"-"`
	// Ready says that a watch sees what happens from now on.
	Ready bool   `json:"ready,omitempty"`
	Event *Event `json:"event,omitempty"`
	End   *End   `json:"end,omitempty"`
}
