// Package quantity reads and writes the amounts people type: sizes, lengths of
// time, shares of a processor. It refuses what it does not fully understand,
// because an amount that was misread becomes a limit that does not hold.
package quantity

import (
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// number is digits with at most one point. Signs, exponents, "inf" and "nan"
// are not amounts. The length keeps a hostile string from costing time.
var number = regexp.MustCompile(`^[0-9]{1,20}(\.[0-9]{1,20})?$`)

var sizePattern = regexp.MustCompile(`^([0-9.]+)(?: ?([A-Za-z]+))?$`)

// sizeUnits: one letter and the binary prefixes count in 1024, as every tool
// that limits memory does; "MB" is what its name says, a million.
var sizeUnits = map[string]int64{
	"": 1, "b": 1,
	"k": 1 << 10, "kib": 1 << 10, "kb": 1e3,
	"m": 1 << 20, "mib": 1 << 20, "mb": 1e6,
	"g": 1 << 30, "gib": 1 << 30, "gb": 1e9,
	"t": 1 << 40, "tib": 1 << 40, "tb": 1e12,
}

// ParseSize reads a number of bytes: "512m", "1.5GiB", "300MB", "4096".
func ParseSize(s string) (int64, error) {
	const hint = `write it like 512m, 1.5GiB, 300MB or a number of bytes`
	if s == "" {
		return 0, fmt.Errorf("size is empty; %s", hint)
	}
	m := sizePattern.FindStringSubmatch(s)
	if m == nil || !number.MatchString(m[1]) {
		return 0, fmt.Errorf("%q is not a size; %s", clip(s), hint)
	}
	unit, ok := sizeUnits[strings.ToLower(m[2])]
	if !ok {
		return 0, fmt.Errorf("%q is not a size: the unit %q is unknown; %s", clip(s), clip(m[2]), hint)
	}
	n, ok := scale(m[1], unit)
	if !ok {
		return 0, fmt.Errorf("%q is more bytes than can be counted; give less than 8 EiB", clip(s))
	}
	if n == 0 {
		return 0, fmt.Errorf("%q is no bytes at all; give a size above 0", clip(s))
	}
	return n, nil
}

// ParseDuration reads a length of time: "90s", "1m30s", "2h", or plain seconds.
func ParseDuration(s string) (time.Duration, error) {
	const hint = `write it like 90s, 1m30s, 2h or a number of seconds`
	if s == "" {
		return 0, fmt.Errorf("duration is empty; %s", hint)
	}
	var d time.Duration
	if number.MatchString(s) {
		n, ok := scale(s, int64(time.Second))
		if !ok {
			return 0, fmt.Errorf("%q is too long a time; %s", clip(s), hint)
		}
		d = time.Duration(n)
	} else {
		var err error
		if d, err = time.ParseDuration(s); err != nil || s[0] == '+' {
			return 0, fmt.Errorf("%q is not a length of time; %s", clip(s), hint)
		}
	}
	if d <= 0 {
		return 0, fmt.Errorf("%q is no time at all; give a duration above 0", clip(s))
	}
	return d, nil
}

// ParseCPUs reads a number of processors and returns thousandths: "0.5", "2".
func ParseCPUs(s string) (int64, error) {
	const hint = "write a decimal number from 0.01 to 64, such as 0.5 or 2"
	whole, fraction, _ := strings.Cut(s, ".")
	if !number.MatchString(s) || len(strings.TrimRight(fraction, "0")) > 3 || len(whole) > 3 {
		return 0, fmt.Errorf("%q is not a number of processors; %s", clip(s), hint)
	}
	n, ok := scale(s, 1000)
	if !ok || n < 10 || n > 64_000 {
		return 0, fmt.Errorf("%q processors are out of range; %s", clip(s), hint)
	}
	return n, nil
}

// ParseCount reads a whole number above 0.
func ParseCount(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 || s[0] == '+' {
		return 0, fmt.Errorf("%q is not a whole number above 0", clip(s))
	}
	return n, nil
}

// scale is decimal times unit, rounded down; false if that is no int64.
func scale(decimal string, unit int64) (int64, bool) {
	r, ok := new(big.Rat).SetString(decimal)
	if !ok {
		return 0, false
	}
	r.Mul(r, new(big.Rat).SetInt64(unit))
	n := new(big.Int).Quo(r.Num(), r.Denom())
	return n.Int64(), n.IsInt64()
}

// Size writes a number of bytes for people: "812 B", "45.2 MiB".
func Size(n int64) string {
	if n < 1<<10 {
		return strconv.FormatInt(n, 10) + " B"
	}
	units := []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	v, i := float64(n)/1024, 0
	for v >= 1023.95 && i < len(units)-1 {
		v /= 1024
		i++
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " " + units[i]
}

// Duration writes a length of time for people, with three digits that matter.
func Duration(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return strconv.FormatFloat(math.Round(d.Seconds()*100)/100, 'f', 2, 64) + "s"
	default:
		return d.Round(time.Second).String()
	}
}

// Count writes a whole number with separators: "84,213".
func Count(n int64) string {
	s := strconv.FormatInt(n, 10)
	start := len(s) % 3
	if n < 0 || len(s) <= 3 {
		return s
	}
	var b strings.Builder
	b.WriteString(s[:start])
	for i := start; i < len(s); i += 3 {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(s[i : i+3])
	}
	return b.String()
}

func clip(s string) string {
	if len(s) > 40 {
		return strings.ToValidUTF8(s[:40], "") + "…"
	}
	return s
}
