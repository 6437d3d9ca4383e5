package run

import (
	"fmt"
	"time"
)

const (
	KiB = int64(1) << 10
	MiB = int64(1) << 20
	GiB = int64(1) << 30
)

// Limits bound one sandbox and every command in it. A field that is zero
// means "not asked for"; Or fills it from defaults.
type Limits struct {
	// MilliCPU is processor time per second, in thousandths of a core.
	MilliCPU int64 `json:"milli_cpu"`
	// MemoryBytes bounds everything the sandbox keeps in memory: programs,
	// the sandboxed kernel itself, and files that are kept there.
	MemoryBytes int64 `json:"memory_bytes"`
	// PIDs bounds processes and threads alive at once.
	PIDs int64 `json:"pids"`
	// DiskBytes and Inodes bound the workspace.
	DiskBytes int64 `json:"disk_bytes"`
	Inodes    int64 `json:"inodes"`
	// OutputBytes bounds what is kept of stdout and, apart from it, of
	// stderr. Bytes above it are read and dropped; the program is not held up.
	OutputBytes int64 `json:"output_bytes"`
	// WallClock bounds the run of one command.
	WallClock time.Duration `json:"wall_clock"`
}

// DefaultLimits is what a caller gets who asks for nothing (REQUIREMENTS B4).
func DefaultLimits() Limits {
	return Limits{
		MilliCPU:    1000,
		MemoryBytes: 512 * MiB,
		PIDs:        256,
		DiskBytes:   256 * MiB,
		Inodes:      131072,
		OutputBytes: 256000,
		WallClock:   120 * time.Second,
	}
}

// Floor is the least of each limit with which a sandbox can work at all. Less
// than this is refused rather than raised.
func Floor() Limits {
	return Limits{
		MilliCPU:    10,
		MemoryBytes: 48 * MiB,
		PIDs:        16, // the sandbox's init passes through with its threads
		DiskBytes:   64 * KiB,
		Inodes:      16,
		OutputBytes: 1,
		WallClock:   time.Millisecond,
	}
}

// Ceiling is the most that is handed out when the operator set nothing else.
func Ceiling() Limits {
	return Limits{
		MilliCPU:    64_000,
		MemoryBytes: 64 * GiB,
		PIDs:        32768,
		DiskBytes:   256 * GiB,
		Inodes:      16 << 20,
		OutputBytes: 64 * MiB,
		WallClock:   24 * time.Hour,
	}
}

// Or returns l with each field that is zero taken from d.
func (l Limits) Or(d Limits) Limits {
	or := func(v *int64, def int64) {
		if *v == 0 {
			*v = def
		}
	}
	or(&l.MilliCPU, d.MilliCPU)
	or(&l.MemoryBytes, d.MemoryBytes)
	or(&l.PIDs, d.PIDs)
	or(&l.DiskBytes, d.DiskBytes)
	or(&l.Inodes, d.Inodes)
	or(&l.OutputBytes, d.OutputBytes)
	or((*int64)(&l.WallClock), int64(d.WallClock))
	return l
}

// LeaveOpen returns l without the limits of processor, memory and processes that
// asked does not have: whoever can enforce them fills them in, and where nobody
// can, nothing is promised.
func (l Limits) LeaveOpen(asked Limits) Limits {
	for _, f := range []struct{ v, asked *int64 }{
		{&l.MilliCPU, &asked.MilliCPU}, {&l.MemoryBytes, &asked.MemoryBytes}, {&l.PIDs, &asked.PIDs},
	} {
		if *f.asked == 0 {
			*f.v = 0
		}
	}
	return l
}

// Clamp returns l with no field above the ceiling c. A zero field of c does
// not bound.
func (l Limits) Clamp(c Limits) Limits {
	low := func(v *int64, max int64) {
		if max > 0 && *v > max {
			*v = max
		}
	}
	low(&l.MilliCPU, c.MilliCPU)
	low(&l.MemoryBytes, c.MemoryBytes)
	low(&l.PIDs, c.PIDs)
	low(&l.DiskBytes, c.DiskBytes)
	low(&l.Inodes, c.Inodes)
	low(&l.OutputBytes, c.OutputBytes)
	low((*int64)(&l.WallClock), int64(c.WallClock))
	return l
}

// Validate says which field is below what a sandbox can work with. Zero
// fields are below it too: fill them with Or first.
func (l Limits) Validate() error {
	floor := Floor()
	for _, f := range []struct {
		name    string
		v, min  int64
		display func(int64) string
	}{
		{"cpu", l.MilliCPU, floor.MilliCPU, func(v int64) string { return fmt.Sprintf("%.3f cores", float64(v)/1000) }},
		{"memory", l.MemoryBytes, floor.MemoryBytes, bytesText},
		{"pids", l.PIDs, floor.PIDs, plain},
		{"disk", l.DiskBytes, floor.DiskBytes, bytesText},
		{"inodes", l.Inodes, floor.Inodes, plain},
		{"output", l.OutputBytes, floor.OutputBytes, bytesText},
		{"wall clock", int64(l.WallClock), int64(floor.WallClock), func(v int64) string { return time.Duration(v).String() }},
	} {
		if f.v < f.min {
			return fmt.Errorf("%s limit %s is below the least possible, %s", f.name, f.display(f.v), f.display(f.min))
		}
	}
	return nil
}

func plain(v int64) string     { return fmt.Sprint(v) }
func bytesText(v int64) string { return fmt.Sprintf("%d bytes", v) }
