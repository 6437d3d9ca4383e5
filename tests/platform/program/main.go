// Command program is what the jobs of the platform's fault tests run. It proves
// how often it ran, in two places: it begins and ends both its output and its
// part of the file "ran" with a name that no other process has. Between the two
// it prints lines, and it may leave a file of random bytes.
//
//	program LINES PAUSE-MS WIDTH LEAVES
package main

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	var numbers [4]int
	if len(os.Args) != 1+len(numbers) {
		os.Exit(98)
	}
	for i := range numbers {
		n, err := strconv.Atoi(os.Args[1+i])
		if err != nil {
			os.Exit(98)
		}
		numbers[i] = n
	}
	lines, pause, width, leaves := numbers[0], time.Duration(numbers[1])*time.Millisecond, numbers[2], numbers[3]
	name := rand.Text()
	say("begin " + name)
	out := bufio.NewWriter(os.Stdout)
	for i := range lines {
		line := fmt.Sprintf("line %d ", i)
		fmt.Fprintln(out, line+strings.Repeat("x", max(0, width-len(line)-1)))
		if pause > 0 {
			must(out.Flush())
			time.Sleep(pause)
		}
	}
	must(out.Flush())
	if leaves > 0 {
		leave(int64(leaves))
	}
	say("end " + name)
}

// say writes to the file first: what is in the output is in the file.
func say(line string) {
	f, err := os.OpenFile("ran", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	must(err)
	_, err = fmt.Fprintln(f, line)
	must(err)
	must(f.Close())
	fmt.Println(line)
}

func leave(bytes int64) {
	f, err := os.Create("left")
	must(err)
	_, err = io.CopyN(f, rand.Reader, bytes)
	must(err)
	must(f.Close())
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(97)
	}
}
