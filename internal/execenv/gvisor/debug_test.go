package gvisor

import "os"

func init() {
	if d := os.Getenv("GVDEBUG"); d != "" {
		runtimeFlags["debug"] = "true"
		runtimeFlags["debug-log"] = d + "/"
		runtimeFlags["panic-log"] = d + "/"
	}
}
