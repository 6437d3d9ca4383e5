package fake

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Programs are in every image: those a test of something else wants most.
func Programs() map[string]Program {
	return map[string]Program{
		"true":  func(*Proc) int { return 0 },
		"false": func(*Proc) int { return 1 },
		"echo": func(p *Proc) int {
			fmt.Fprintln(p.Stdout, strings.Join(p.Args[1:], " "))
			return 0
		},
		"cat":   cat,
		"env":   printEnv,
		"pwd":   func(p *Proc) int { fmt.Fprintln(p.Stdout, p.Dir); return 0 },
		"sleep": sleep,
		"tee":   tee,
	}
}

// cat prints files, or stdin.
func cat(p *Proc) int {
	if len(p.Args) == 1 {
		_, _ = io.Copy(p.Stdout, p.Stdin)
		return 0
	}
	code := 0
	for _, name := range p.Args[1:] {
		data, err := p.ReadFile(name)
		if err != nil {
			fmt.Fprintln(p.Stderr, "cat:", err)
			code = 1
		}
		_, _ = p.Stdout.Write(data)
	}
	return code
}

func printEnv(p *Proc) int {
	for _, kv := range p.Env {
		fmt.Fprintln(p.Stdout, kv)
	}
	return 0
}

// sleep takes seconds, or a duration as Go writes it.
func sleep(p *Proc) int {
	if len(p.Args) < 2 {
		fmt.Fprintln(p.Stderr, "sleep: how long?")
		return 1
	}
	d, err := time.ParseDuration(p.Args[1])
	if err != nil {
		if d, err = time.ParseDuration(p.Args[1] + "s"); err != nil {
			fmt.Fprintln(p.Stderr, "sleep:", err)
			return 1
		}
	}
	p.Sleep(d)
	return 0
}

// tee copies stdin to stdout and to a file: the way to write one.
func tee(p *Proc) int {
	data, _ := io.ReadAll(p.Stdin)
	_, _ = p.Stdout.Write(data)
	for _, name := range p.Args[1:] {
		if err := p.WriteFile(name, data); err != nil {
			fmt.Fprintln(p.Stderr, "tee:", err)
			return 1
		}
	}
	return 0
}
