package main

import (
	"cmp"
	"os"

	"github.com/spf13/cobra"

	"github.com/agentdock/agentdock/internal/doctor"
	"github.com/agentdock/agentdock/internal/image"
	"github.com/agentdock/agentdock/internal/localexecd"
)

const doctorLong = `Find out what this host gives: what it has, which environments can run on it, and
which guarantees hold, each under the id that SECURITY.md explains.

Guarantees are not looked up but attacked: probes run in a real sandbox and try
what must not work. Each has a control, the same attempt where the guarantee is
absent, which must work; a refusal without it proves nothing.

With SANDBOX_RUNTIME=docker it says what the development fallback declares, and
attacks nothing; then some guarantees are never given, and the exit status is 1.

It takes root, but not for that, and no image. What it makes is gone when it ends. Nothing that it
tries uses more than 192 MiB of memory, 96 processes or a second of two
processors.

Exit status: 0 if every guarantee holds; 1 if one is broken or could not be
shown; 125 if the examination itself failed.

Variables: ` + localexecd.BinaryEnv + `, ` + localexecd.DirEnv + `, as for agentdock run.`

func newDoctor() *cobra.Command {
	var asJSON, quick bool
	var imageDir string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out which guarantees hold on this host",
		Long:  doctorLong,
		Example: `  sudo agentdock doctor
  sudo agentdock doctor --json | jq '.guarantees[] | select(.status != "holds")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, _, stop := catchSignals(cmd.Context())
			defer stop()
			console := newConsole(cmd.ErrOrStderr())
			development, err := localRuntime(os.Environ())
			if err != nil {
				return err
			}
			report, err := doctor.Run(ctx, doctor.Options{
				Development: development,
				ImageDir:    cmp.Or(imageDir, os.Getenv(image.DirEnv), image.DefaultDir), Quick: quick, Phase: console.phase,
			})
			if err != nil {
				return err
			}
			write := report.WriteText
			if asJSON {
				write = report.WriteJSON
			}
			if err := write(cmd.OutOrStdout()); err != nil {
				return err
			}
			if status := report.ExitStatus(); status != 0 {
				return exitStatus(status)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object instead of text")
	cmd.Flags().BoolVar(&quick, "quick", false, "leave out what takes longer than a moment")
	cmd.Flags().StringVar(&imageDir, "image-dir", "", "`directory` of the image store to look at; "+image.DirEnv+" sets the default")
	return cmd
}
