package settings

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/agentdock/agentdock/internal/quantity"
)

// Secret is a value that shows itself to nobody: printing it, logging it or
// encoding it gives a placeholder.
type Secret string

const redacted = "[secret]"

// Reveal gives the value to the one place that uses it.
func (s Secret) Reveal() string { return string(s) }

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

func (s Secret) GoString() string             { return s.String() }
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
func (s Secret) LogValue() slog.Value         { return slog.StringValue(s.String()) }

// Size is a number of bytes, written as people do: 512m, 4g, 1048576.
type Size int64

func (s *Size) UnmarshalText(b []byte) error { return s.Set(string(b)) }

func (s *Size) Set(text string) error {
	n, err := quantity.ParseSize(text)
	if err == nil {
		*s = Size(n)
	}
	return err
}

func (s *Size) Type() string { return "size" }

func (s Size) String() string {
	for i, unit := range []string{"t", "g", "m", "k"} {
		if shift := 10 * (4 - i); s != 0 && s%(1<<shift) == 0 {
			return fmt.Sprintf("%d%s", s>>shift, unit)
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Bytes is a Size that people write as a plain number.
type Bytes int64

func (b *Bytes) UnmarshalText(text []byte) error { return (*Size)(b).UnmarshalText(text) }

// CPUs is a share of processors in thousandths, written 0.5 or 2.
type CPUs int64

func (c *CPUs) UnmarshalText(b []byte) error {
	n, err := quantity.ParseCPUs(string(b))
	if err == nil {
		*c = CPUs(n)
	}
	return err
}

func (c CPUs) String() string {
	s := strconv.FormatFloat(float64(c)/1000, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// Seconds is a length of time, written as a number of seconds or like 1m30s.
type Seconds time.Duration

func (s *Seconds) UnmarshalText(b []byte) error {
	d, err := quantity.ParseDuration(string(b))
	if err == nil {
		*s = Seconds(d)
	}
	return err
}

func (s Seconds) String() string {
	return strconv.FormatFloat(time.Duration(s).Seconds(), 'f', -1, 64)
}

// Level is how much is logged.
type Level slog.Level

func (l *Level) UnmarshalText(b []byte) error { return (*slog.Level)(l).UnmarshalText(b) }
func (l Level) String() string                { return strings.ToLower(slog.Level(l).String()) }

// Endpoint is an execution service by the name that jobs have on record.
type Endpoint struct {
	Name string
	// Socket is a path, or Address a host and port; one of them.
	Socket, Address string
}

func (e *Endpoint) UnmarshalText(b []byte) error {
	const how = "write NAME=unix:PATH or NAME=HOST:PORT"
	name, where, ok := strings.Cut(strings.TrimSpace(string(b)), "=")
	if !ok || !isName(name) || where == "" {
		return fmt.Errorf("%q is no execution service; %s", b, how)
	}
	*e = Endpoint{Name: name}
	if path, ok := strings.CutPrefix(where, "unix:"); ok {
		e.Socket = path
		if !strings.HasPrefix(path, "/") {
			return fmt.Errorf("the socket %q of %s is no absolute path; %s", path, name, how)
		}
		return nil
	}
	if i := strings.LastIndex(where, ":"); i <= 0 || i == len(where)-1 || strings.Contains(where, "/") {
		return fmt.Errorf("the address %q of %s has no host or no port; %s", where, name, how)
	}
	e.Address = where
	return nil
}

// isName keeps names such that they can be logged and kept anywhere.
func isName(s string) bool {
	if s == "" || len(s) > 63 {
		return false
	}
	for _, c := range s {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-", c) {
			return false
		}
	}
	return true
}

func (e Endpoint) String() string {
	if e.Socket != "" {
		return e.Name + "=unix:" + e.Socket
	}
	return e.Name + "=" + e.Address
}
