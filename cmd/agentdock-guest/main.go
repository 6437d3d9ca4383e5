// Command agentdock-guest is the helper inside a sandbox. It is mounted there
// read-only and started by the execution service only:
//
//	agentdock-guest init JSON         set-up, then process 1 (see guest.Setup)
//	agentdock-guest unpack DIR        tar from stdin
//	agentdock-guest pack DIR MAX [PATTERN…]   tar to stdout
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/agentdock/agentdock/internal/guest"
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
	case len(args) == 2 && args[0] == "unpack":
		return guest.Unpack(args[1], os.Stdin)
	case len(args) >= 3 && args[0] == "pack":
		most, err := strconv.ParseInt(args[2], 10, 64)
		if err != nil {
			return fmt.Errorf("cannot read the limit: %w", err)
		}
		return guest.Pack(args[1], args[3:], most, os.Stdout)
	}
	return errors.New("agentdock-guest is started by agentdock-execd inside a sandbox; it is of no use elsewhere")
}
