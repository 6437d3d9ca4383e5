package testenv

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// CanSetClocks says whether SetClock works here.
const CanSetClocks = true

// SetClock makes a process see a wall clock that is off by so many whole
// seconds, from this moment on. It is the program as it is: programs ask the
// kernel for the time in a function that the kernel maps into each of them, and
// that function is replaced in this one. Clocks that cannot be set go on as they
// do when an administrator sets the machine's.
func SetClock(t testing.TB, pid int, off time.Duration) {
	t.Helper()
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	at, size, err := clockFunction(pid, memory)
	if err != nil {
		t.Fatal(err)
	}
	code := clockOff(off)
	if uint64(len(code)) > size {
		t.Fatalf("the clock's function has %d bytes, and what replaces it %d", size, len(code))
	}
	// Nobody may be in the function while it changes.
	for deadline := time.Now().Add(10 * time.Second); ; {
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		outside := allOutside(t, pid, at, at+size, deadline)
		if outside {
			_, err = memory.WriteAt(code, int64(at))
		}
		_ = unix.Kill(pid, unix.SIGCONT)
		if err != nil {
			t.Fatalf("cannot set the clock of process %d: %v", pid, err)
		}
		if outside {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d is always looking at its clock", pid)
		}
	}
}

// clockOff is the function: clock_gettime as a system call, and the seconds
// added to what it says if the clock asked for is the wall's.
func clockOff(off time.Duration) []byte {
	code := []byte{
		0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, SYS_clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi
		0x75, 0x11, // jnz to the end
		0x85, 0xc0, // test eax, eax
		0x75, 0x0d, // jnz to the end
		0x48, 0xb9, // mov rcx, the seconds
	}
	code = binary.LittleEndian.AppendUint64(code, uint64(int64(off/time.Second)))
	return append(code,
		0x48, 0x01, 0x0e, // add [rsi], rcx
		0xc3) // ret
}

// clockFunction finds it in the pages that the kernel maps.
func clockFunction(pid int, memory *os.File) (at, size uint64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	var begin, end uint64
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			if _, err := fmt.Sscanf(line, "%x-%x ", &begin, &end); err != nil {
				return 0, 0, err
			}
		}
	}
	if begin == 0 {
		return 0, 0, fmt.Errorf("process %d has no vDSO", pid)
	}
	image := make([]byte, end-begin)
	if _, err := memory.ReadAt(image, int64(begin)); err != nil {
		return 0, 0, err
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, 0, err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, 0, err
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			return begin + s.Value, s.Size, nil
		}
	}
	return 0, 0, fmt.Errorf("the vDSO of process %d has no clock", pid)
}

// allOutside waits until every thread of a process has stopped, and says whether
// none of them has stopped between two addresses.
func allOutside(t testing.TB, pid int, from, to uint64, deadline time.Time) bool {
	t.Helper()
	for {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		stopped, outside := len(threads) > 0, true
		for _, thread := range threads {
			state, _ := os.ReadFile(thread + "/stat")
			where, _ := os.ReadFile(thread + "/syscall") // its last word is where it is
			words := strings.Fields(string(where))
			var at uint64
			if _, after, _ := strings.Cut(string(state), ") "); !strings.HasPrefix(after, "T") || len(words) < 2 {
				stopped = false
			} else if _, err := fmt.Sscanf(words[len(words)-1], "0x%x", &at); err != nil {
				t.Fatalf("cannot tell where a thread has stopped: %q", where)
			}
			outside = outside && (at < from || at >= to)
		}
		if stopped {
			return outside
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d does not stop", pid)
		}
		time.Sleep(time.Millisecond)
	}
}
