// The sandbox's kernel shows as many processors as the limit allows. The Go
// runtime would look for a limit in control groups at each start.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command agentdock-guest is the helper inside a sandbox. It is mounted there
// read-only and started by the execution service only:
//
//	agentdock-guest init JSON         set-up, then process 1 (see guest.Setup)
//	agentdock-guest supervise JSON    process 1 of a container (see package supervisor)
//	agentdock-guest shepherd          one command of a container
//	agentdock-guest unpack ROOT DIR                tar from stdin
//	agentdock-guest pack ROOT DIR MAX [PATTERN…]   tar to stdout
//	agentdock-guest exec COMMAND                   see guest.Command
//	agentdock-guest files REQUEST                  see package filewire
//	agentdock-guest relay SOCKET                   see guest.Relay
//	agentdock-guest network PORT                   see guest.Network
//	agentdock-guest probe NAME [ARGUMENT…]         see guest.Probe; agentdock doctor also
//	                                               runs it on the host, for comparison
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/agentdock/agentdock/internal/guest"
	"github.com/agentdock/agentdock/internal/guest/files"
	"github.com/agentdock/agentdock/internal/guest/supervisor"
)

func main() {
	err := dispatch(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(guest.ExitStatus(err))
}

func dispatch(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "init":
		var setup guest.Setup
		if err := json.Unmarshal([]byte(args[1]), &setup); err != nil {
			return fmt.Errorf("cannot read the set-up: %w", err)
		}
		return guest.Init(setup)
	case len(args) == 2 && args[0] == "supervise":
		var cfg supervisor.Config
		if err := json.Unmarshal([]byte(args[1]), &cfg); err != nil {
			return fmt.Errorf("cannot read the set-up: %w", err)
		}
		return supervisor.Supervise(cfg)
	case len(args) == 1 && args[0] == "shepherd":
		return supervisor.Shepherd()
	case len(args) == 3 && args[0] == "unpack":
		return guest.Unpack(args[1], args[2], os.Stdin)
	case len(args) >= 4 && args[0] == "pack":
		most, err := strconv.ParseInt(args[3], 10, 64)
		if err != nil {
			return fmt.Errorf("cannot read the limit: %w", err)
		}
		return guest.Pack(args[1], args[2], args[4:], most, os.Stdout)
	case len(args) == 2 && args[0] == "exec":
		return guest.Exec(args[1])
	case len(args) == 2 && args[0] == "files":
		return files.Serve(args[1], os.Stdin, os.Stdout)
	case len(args) == 2 && args[0] == "relay":
		return guest.Relay(args[1], os.Stdin, os.Stdout)
	case len(args) == 2 && args[0] == "network":
		port, err := strconv.Atoi(args[1])
		if err != nil {
			return fmt.Errorf("cannot read the port: %w", err)
		}
		return guest.Network(port, os.Stdout)
	case len(args) >= 2 && args[0] == "probe":
		return guest.Probe(args[1:], os.Stdout)
	}
	return errors.New("agentdock-guest is started by agentdock-execd inside a sandbox; it is of no use elsewhere")
}
