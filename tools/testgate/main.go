// Command testgate runs "go test" and says what a green result alone does not:
// which cases were skipped, and why. With -strict, a skip fails the run unless
// a file of allowed skips names it with a reason.
//
// Cases that need a real part (a real sandbox, root) skip where that part is
// missing, which is right on a laptop and wrong where everything has been
// installed: there, a skipped case is a guarantee that nobody has checked.
//
// What failed is printed where it happens. A run of half an hour buries that, so
// -failures appends it to a file too, each failure cut to a few lines' worth.
//
// Usage: testgate [-strict] [-allow FILE] [-failures FILE] [--] [arguments of go test]
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
	failuresFile := flag.String("failures", "", "file to append what failed to")
	flag.Parse()
	if err := run(os.Stdout, *strict, *allowFile, *failuresFile, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "testgate: %v\n", err)
		os.Exit(1)
	}
}

func run(out io.Writer, strict bool, allowFile, failuresFile string, args []string) error {
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
	sumErr := r.finish(strict, allowed)
	return errors.Join(readErr, waitErr, sumErr, writeFailures(failuresFile, r.failures.String()))
}

// writeFailures appends what failed to a file. An empty name means none.
func writeFailures(name, text string) error {
	if name == "" || text == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("cannot note what failed: %w", err)
	}
	if _, err := f.WriteString(text); err != nil {
		return errors.Join(fmt.Errorf("cannot note what failed: %w", err), f.Close())
	}
	return f.Close()
}
