// Command program is what the jobs of the platform's fault tests run. It proves
// how often it ran, in two places: it begins and ends both its output and its
// part of the file "ran" with a name that no other process has.
package main

import (
	"crypto/rand"
	"fmt"
	"os"
	"strconv"
	"time"
)

func main() {
	if len(os.Args) != 3 {
		os.Exit(98)
	}
	lines, err1 := strconv.Atoi(os.Args[1])
	pause, err2 := strconv.Atoi(os.Args[2])
	if err1 != nil || err2 != nil {
		os.Exit(98)
	}
	name := rand.Text()
	say("begin " + name)
	for i := range lines {
		fmt.Printf("line %d\n", i)
		time.Sleep(time.Duration(pause) * time.Millisecond)
	}
	say("end " + name)
}

// say writes to the file first: what is in the output is in the file.
func say(line string) {
	f, err := os.OpenFile("ran", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = fmt.Fprintln(f, line)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(97)
	}
	fmt.Println(line)
}
