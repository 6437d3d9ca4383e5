// Command testgate runs "go test" and says what a green result alone does not:
// which cases were skipped, and why. With -strict, a skip fails the run unless
// a file of allowed skips names it with a reason.
//
// Cases that need a real part (a real sandbox, root) skip where that part is
// missing, which is right on a laptop and wrong where everything has been
// installed: there, a skipped case is a guarantee that nobody has checked.
//
// Usage: testgate [-strict] [-allow FILE] [--] [arguments of go test]
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
)

func main() {
	strict := flag.Bool("strict", false, "fail if a case is skipped that the allow file does not name")
	allowFile := flag.String("allow", "", "file of allowed skips: package, test and reason on each line")
	flag.Parse()
	if err := run(os.Stdout, *strict, *allowFile, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "testgate: %v\n", err)
		os.Exit(1)
	}
}

func run(out io.Writer, strict bool, allowFile string, args []string) error {
	allowed, err := readAllowed(allowFile)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("cannot run go test: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot run go test: %w", err)
	}
	r := newReport(out)
	readErr := r.read(stdout)
	waitErr := cmd.Wait()
	if waitErr != nil {
		waitErr = fmt.Errorf("go test: %w", waitErr)
	}
	return errors.Join(readErr, waitErr, r.finish(strict, allowed))
}
