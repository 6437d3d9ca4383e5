// Command notices writes the licences of every module that AgentDock's
// binaries are made of, as those licences ask for, and refuses modules whose
// licence does not let us pass them on freely.
//
// It works offline from the module cache. It reads the licence files
// themselves instead of a list kept by hand, so that an upgrade which changes
// a licence is noticed; the recogniser is the one behind Go's package site.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
)

func main() {
	out := flag.String("out", "THIRD_PARTY_NOTICES.md", "file to write or check")
	check := flag.Bool("check", false, "write nothing; fail if the file is not up to date")
	flag.Parse()
	patterns := flag.Args()
	if len(patterns) == 0 {
		patterns = []string{"./cmd/..."}
	}
	if err := run(patterns, *out, *check); err != nil {
		fmt.Fprintf(os.Stderr, "notices: %v\n", err)
		os.Exit(1)
	}
}

func run(patterns []string, out string, check bool) error {
	parts, err := linked(patterns)
	if err != nil {
		return err
	}
	var refused []error
	for i := range parts {
		if err := parts[i].read(); err != nil {
			refused = append(refused, err)
		}
	}
	if len(refused) > 0 {
		return errors.Join(refused...)
	}
	text := render(parts)
	if !check {
		if err := os.WriteFile(out, text, 0o644); err != nil {
			return fmt.Errorf("cannot write notices: %w", err)
		}
		fmt.Printf("%s: %d modules, all of them under permissive licences\n", out, len(parts))
		return nil
	}
	committed, err := os.ReadFile(out)
	if err != nil {
		return fmt.Errorf("cannot check notices: %w; write the file with: make notices", err)
	}
	if !bytes.Equal(committed, text) {
		return fmt.Errorf("%s is not what the binaries are made of: dependencies have changed; write it again with: make notices", out)
	}
	fmt.Printf("%s is up to date: %d modules\n", out, len(parts))
	return nil
}
