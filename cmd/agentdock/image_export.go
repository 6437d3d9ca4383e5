package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/agentdock/agentdock/internal/image"
)

func newImageExport(flags *imageFlags) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "export NAME|DIGEST",
		Short: "Write what an image holds as a tar archive",
		Long: `Write what an image holds as a tar archive, with owners and modes, for what takes
no other form: a Docker daemon, as the development fallback needs one, on a machine
that reaches no registry.`,
		Example: `  agentdock image export default | docker import - agentdock-sandbox:local`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			store, err := image.Open(flags.store)
			if err != nil {
				return err
			}
			img, err := store.Resolve(args[0])
			if err != nil {
				return err
			}
			if out == "" {
				return image.Export(img.Path, cmd.OutOrStdout())
			}
			f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
			if err != nil {
				return fmt.Errorf("cannot write the archive: %w", err)
			}
			if err := image.Export(img.Path, f); err != nil {
				_ = f.Close()
				_ = os.Remove(out)
				return err
			}
			return f.Close()
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "`file` to write instead of standard output; it must not exist")
	return cmd
}
