package quantity

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestSizes(t *testing.T) {
	for in, want := range map[string]int64{
		"1": 1, "4096": 4096, "10b": 10, "512m": 512 << 20, "512M": 512 << 20, "1g": 1 << 30,
		"1.5GiB": 3 << 29, "1.5g": 3 << 29, "300MB": 300e6, "300mb": 300e6, "2k": 2048, "2KB": 2000,
		"0.5k": 512, "1 GiB": 1 << 30, "1t": 1 << 40, "9223372036854775807": math.MaxInt64, "0.0009765625m": 1024,
	} {
		got, err := ParseSize(in)
		if err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", " ", "-1", "+1", "12parsecs", "0", "0m", "0.1", "1e9", "inf", "NaN", "0x10", "1..5g", ".5g", "5.g", "1,5g",
		"9223372036854775808", "8388608t", "99999999999999999999g", strings.Repeat("9", 5000), "m", "1 m m", "1gg", "1ib",
		"512m\n", "½g", "1_000",
	} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", in, got)
		} else if len(err.Error()) > 250 {
			t.Errorf("ParseSize(%.20q…): the message is %d bytes long", in, len(err.Error()))
		}
	}
}

func TestDurations(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"90": 90 * time.Second, "1.5": 1500 * time.Millisecond, "90s": 90 * time.Second, "1m30s": 90 * time.Second,
		"2h": 2 * time.Hour, "250ms": 250 * time.Millisecond, "0.25": 250 * time.Millisecond,
	} {
		got, err := ParseDuration(in)
		if err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %s, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "0", "0s", "-1", "-1s", "soon", "1 s", "99999999999999", "1e3", "999999999h", "5 minutes"} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("ParseDuration(%q) = %s, want an error", in, got)
		}
	}
}

func TestProcessors(t *testing.T) {
	for in, want := range map[string]int64{"1": 1000, "0.01": 10, "0.5": 500, "64": 64000, "1.250": 1250, "2.0000": 2000} {
		got, err := ParseCPUs(in)
		if err != nil || got != want {
			t.Errorf("ParseCPUs(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "0", "0.001", "64.001", "65", "-1", "1e1", "nan", "0.0155", "one", "1,5", "+1", ".5"} {
		if got, err := ParseCPUs(in); err == nil {
			t.Errorf("ParseCPUs(%q) = %d, want an error", in, got)
		}
	}
}

func TestCounts(t *testing.T) {
	if n, err := ParseCount("256"); n != 256 || err != nil {
		t.Errorf("ParseCount(256) = %d, %v", n, err)
	}
	for _, in := range []string{"", "0", "-1", "+1", "1.5", "99999999999999999999", "many"} {
		if got, err := ParseCount(in); err == nil {
			t.Errorf("ParseCount(%q) = %d, want an error", in, got)
		}
	}
}

func TestForPeople(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 812: "812 B", 1024: "1.0 KiB", 47395635: "45.2 MiB", 1<<20 - 1: "1.0 MiB", 1 << 30: "1.0 GiB", math.MaxInt64: "8.0 EiB",
	} {
		if got := Size(n); got != want {
			t.Errorf("Size(%d) = %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "0s", 1234567 * time.Microsecond: "1.23s", 83 * time.Millisecond: "83ms", 123400 * time.Millisecond: "2m3s", time.Second: "1.00s",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%d) = %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 84213: "84,213", 123456: "123,456", 1234567: "1,234,567"} {
		if got := Count(n); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
}
