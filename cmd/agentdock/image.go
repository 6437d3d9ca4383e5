package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentdock/agentdock/internal/image"
	"github.com/agentdock/agentdock/internal/image/ingest"
)

// imageFlags are what the image commands share.
type imageFlags struct {
	store string
	json  bool
}

func newImage() *cobra.Command {
	var flags imageFlags
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Make and manage the root images that sandboxes run",
		Long: `Make and manage the root images that sandboxes run.

A root image is one read-only file that every sandbox using it shares. It is
made once, from packages, an archive or a registry, and named by the digest of
its bytes. Making one needs root (for the owners of files) and the package
erofs-utils; listing needs neither.`,
		RunE: subcommandsOnly,
	}
	cmd.PersistentFlags().StringVar(&flags.store, "store", cmp.Or(os.Getenv(image.DirEnv), image.DefaultDir),
		"`directory` of the image store; "+image.DirEnv+" sets the default")
	cmd.AddCommand(
		newImageBuild(&flags),
		newImageImport(&flags),
		newImagePull(&flags),
		newImageList(&flags),
		newImageRemove(&flags),
		newImagePrune(&flags),
		newImageVerify(&flags),
		newImageExport(&flags),
	)
	return cmd
}

// subcommandsOnly is for commands that only group others: alone they explain
// themselves, and a word that is none of them is an error.
func subcommandsOnly(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return fmt.Errorf("unknown command %q for %q; see %s --help", args[0], cmd.CommandPath(), cmd.CommandPath())
}

// jsonFlag adds --json to a command whose output is data.
func (f *imageFlags) jsonFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON instead of text")
	return cmd
}

// progress writes what goes on to the error stream, with the time it has
// taken so far, so that the output stays data.
func progress(w io.Writer) func(string) {
	start := time.Now()
	return func(line string) {
		fmt.Fprintf(w, "image: %s (%d s)\n", line, int(time.Since(start).Seconds()))
	}
}

// printImage prints the image a command made.
func (f *imageFlags) printImage(cmd *cobra.Command, done string, img image.Image) error {
	if f.json {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(img)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s: %s, %s\n", done, img.Name, size(img.Bytes), img.Digest)
	return err
}

func newImageImport(flags *imageFlags) *cobra.Command {
	var name, platform, tag string
	cmd := &cobra.Command{
		Use:   "import FILE|DIRECTORY|-",
		Short: "Make an image from an archive",
		Long: `Make an image from an archive. What it is is found out by looking inside:

  a root file system   a tar archive, as mmdebstrap or "docker export" make it
  a saved image        a tar archive, as "docker save" makes it
  an OCI layout        a directory or a tar archive

Archives may be compressed with gzip or zstd. "-" reads a root file system
from standard input. The archive is taken to be hostile: an entry that names
something outside the image, a device, or a size out of bounds is an error.`,
		Example: `  docker save my-image | zstd > my-image.tar.zst
  sudo agentdock image import --name my-image my-image.tar.zst`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			done := "imported"
			return flags.make(cmd, &done, func(ctx context.Context, w *image.Writer, say func(string)) (image.Image, error) {
				opt := ingest.ImportOptions{
					Options:  ingest.Options{Name: name, Progress: say},
					Platform: platform,
					Tag:      tag,
				}
				if args[0] == "-" {
					return ingest.ImportTar(ctx, w, cmd.InOrStdin(), opt.Options)
				}
				return ingest.ImportArchive(ctx, w, args[0], opt)
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", image.Default, "`name` of the image in the store")
	cmd.Flags().StringVar(&platform, "platform", "", "`os/architecture` to choose from an image made for several (default: this machine's)")
	cmd.Flags().StringVar(&tag, "tag", "", "`tag` to choose from an archive that holds several images")
	return flags.jsonFlag(cmd)
}

// make opens the store for writing and runs one way of making an image; done
// is what to call it afterwards.
func (f *imageFlags) make(cmd *cobra.Command, done *string,
	how func(context.Context, *image.Writer, func(string)) (image.Image, error)) error {
	ctx := cmd.Context()
	w, err := image.OpenWriter(ctx, f.store)
	if err != nil {
		return err
	}
	img, err := how(ctx, w, progress(cmd.ErrOrStderr()))
	if err != nil {
		return err
	}
	return f.printImage(cmd, *done, img)
}

func newImageList(flags *imageFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the images in the store",
		Long: `List the images in the store. One that shows "-" for its name lost it to a
newer image; "agentdock image prune" removes such.`,
		Example: `  agentdock image list
  agentdock image list --json | jq -r '.[].digest'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := image.Open(flags.store)
			if err != nil {
				return err
			}
			images, err := store.List()
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if flags.json {
				if images == nil {
					images = []image.Image{}
				}
				return json.NewEncoder(out).Encode(images)
			}
			if len(images) == 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "no images in %s; make the default one with `agentdock image build`\n", store.Dir())
				return nil
			}
			tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(tw, "NAME\tSIZE\tCREATED\tDIGEST\tSOURCE")
			for _, img := range images {
				fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", cmp.Or(img.Name, "-"), size(img.Bytes),
					img.CreatedAt.Local().Format("2006-01-02 15:04"), img.Digest, img.Source)
			}
			return tw.Flush()
		},
	}
	return flags.jsonFlag(cmd)
}

func size(bytes int64) string {
	switch {
	case bytes >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	case bytes >= 1<<20:
		return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20))
	}
	return fmt.Sprintf("%.0f KiB", float64(bytes)/(1<<10))
}
