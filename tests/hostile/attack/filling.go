package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// fillingVerbs fill places in ways that a quota of blocks could miss.
var fillingVerbs = map[string]attempt{
	// fill-both goes on in a second file where the first was refused.
	"fill-both": func(args []string) error {
		if err := fillFile([]string{arg(args, 0), arg(args, 2)}); err != nil && !errors.Is(err, unix.ENOSPC) {
			return err
		}
		return fillFile(args[1:])
	},
	// fill-then fills a file and tries the rest beside it.
	"fill-then": func(args []string) error {
		if err := fillFile(args); !errors.Is(err, unix.ENOSPC) {
			return fmt.Errorf("it was never full: %w", err)
		}
		return again(nil, args[2:])
	},
	// holes writes pages so far apart that none lies beside another.
	"holes": func(args []string) error {
		fd, err := unix.Open(arg(args, 0), unix.O_WRONLY|unix.O_CREAT, 0o600)
		if err != nil {
			return err
		}
		stride, total := int64(num(args, 1)), num(args, 2)
		b := make([]byte, page)
		for i := range int64(total / page) {
			if _, err := unix.Pwrite(fd, b, i*stride); err != nil {
				return fmt.Errorf("page %d: %w", i, err)
			}
		}
		return nil
	},
	// churn-room fills a file in pieces, cuts every second piece out and fills what
	// that left, so that room is taken and given back as fast as it can be.
	"churn-room": func(args []string) error {
		const pieces = 64
		size := num(args, 1) / pieces
		for range num(args, 2) {
			for i := range pieces {
				if err := os.WriteFile(fmt.Sprintf("%s-%d", arg(args, 0), i), make([]byte, size), 0o600); err != nil {
					return err
				}
			}
			for i := 0; i < pieces; i += 2 {
				if err := os.Remove(fmt.Sprintf("%s-%d", args[0], i)); err != nil {
					return err
				}
			}
			fd, err := unix.Open(args[0], unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, 0o600)
			if err != nil {
				return err
			}
			if err := errors.Join(pour(fd, size*pieces/2), unix.Close(fd), os.Remove(args[0])); err != nil {
				return err
			}
		}
		return nil
	},
	// fill-mapped-holes touches every second page of a mapping.
	"fill-mapped-holes": func(args []string) error {
		fd, err := unix.Open(arg(args, 0), unix.O_RDWR|unix.O_CREAT, 0o600)
		if err != nil {
			return err
		}
		n := num(args, 1)
		if err := unix.Ftruncate(fd, int64(n)); err != nil {
			return err
		}
		b, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		for i := 0; i < n; i += 2 * page {
			b[i] = 1
		}
		return nil
	},
}
