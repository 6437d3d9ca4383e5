package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentdock/agentdock/internal/image"
	"github.com/agentdock/agentdock/internal/image/ingest"
)

func newImageBuild(flags *imageFlags) *cobra.Command {
	var opt ingest.BuildOptions
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Make the default image from the distribution's packages",
		Long: `Make the default image from the packages of this machine's own distribution
(Debian or Ubuntu): Python with pytest, Node.js, git and the usual tools.

Packages come from the mirrors this machine itself uses; sources of third
parties are left out. When the store already has the image from the same
recipe nothing is done, unless --force says to take newer packages. It takes
about a minute and needs the packages mmdebstrap and erofs-utils.`,
		Example: `  sudo agentdock image build
  sudo agentdock image build --force --store /srv/agentdock/images`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			done := "built"
			return flags.make(cmd, &done, func(ctx context.Context, w *image.Writer, say func(string)) (image.Image, error) {
				opt.Progress = say
				img, built, err := ingest.BuildDefault(ctx, w, opt)
				if err == nil && !built {
					done = "already have"
				}
				return img, err
			})
		},
	}
	cmd.Flags().StringVar(&opt.Name, "name", image.Default, "`name` of the image in the store")
	cmd.Flags().BoolVar(&opt.Force, "force", false, "build even if the store has the image from the same recipe")
	cmd.Flags().StringVar(&opt.SourcesFile, "sources", "", "`file` of package sources in apt's format, instead of this machine's own")
	return flags.jsonFlag(cmd)
}

func newImagePull(flags *imageFlags) *cobra.Command {
	var name string
	var opt ingest.PullOptions
	cmd := &cobra.Command{
		Use:   "pull REFERENCE",
		Short: "Make an image from one in a registry",
		Long: `Make an image from one in a registry. Every part is checked against its digest.
Credentials are those that "docker login" stored. Without --name the image is
called by its reference.`,
		Example: `  sudo agentdock image pull python:3.13-slim
  sudo agentdock image pull --name default registry.example/team/sandbox@sha256:…`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			done := "pulled"
			return flags.make(cmd, &done, func(ctx context.Context, w *image.Writer, say func(string)) (image.Image, error) {
				opt.Name, opt.Progress = name, say
				if name == "" {
					opt.Name = args[0]
				}
				return ingest.Pull(ctx, w, args[0], opt)
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "`name` of the image in the store (default: the reference)")
	cmd.Flags().StringVar(&opt.Platform, "platform", "", "`os/architecture` to choose from an image made for several (default: this machine's)")
	cmd.Flags().BoolVar(&opt.Insecure, "insecure", false, "allow plain HTTP to a registry on another machine")
	return flags.jsonFlag(cmd)
}

func newImageRemove(flags *imageFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "rm NAME|DIGEST...",
		Aliases: []string{"remove"},
		Short:   "Remove images from the store",
		Long: `Remove images from the store. The file goes when no other name needs it.
Sandboxes that run an image when it is removed are not disturbed.`,
		Example: `  sudo agentdock image rm python:3.13-slim`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := image.OpenWriter(cmd.Context(), flags.store)
			if err != nil {
				return err
			}
			for _, arg := range args {
				if err := w.Remove(cmd.Context(), arg); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "removed %s\n", arg)
			}
			return nil
		},
	}
}

func newImagePrune(flags *imageFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "prune",
		Short: "Remove images whose name was given to a newer one",
		Long: `Remove images whose name was given to a newer one. They are kept until then,
because work may be pinned to their digests.`,
		Example: `  sudo agentdock image prune`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w, err := image.OpenWriter(cmd.Context(), flags.store)
			if err != nil {
				return err
			}
			pruned, err := w.Prune(cmd.Context())
			for _, img := range pruned {
				fmt.Fprintf(cmd.OutOrStdout(), "removed %s, %s\n", img.Digest, size(img.Bytes))
			}
			return err
		},
	}
}

func newImageVerify(flags *imageFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "verify [NAME|DIGEST...]",
		Short: "Compare image files with their digests",
		Long: `Compare image files with their digests, all of them if none is named. It reads
every byte, and needs no more than permission to read.`,
		Example: `  agentdock image verify default`,
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := image.Open(flags.store)
			if err != nil {
				return err
			}
			var images []image.Image
			if len(args) == 0 {
				if images, err = store.List(); err != nil {
					return err
				}
			}
			for _, arg := range args {
				img, err := store.Resolve(arg)
				if err != nil {
					return err
				}
				images = append(images, img)
			}
			for _, img := range images {
				if err := store.Verify(cmd.Context(), img); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "sound %s %s\n", img.Digest, img.Name)
			}
			return nil
		},
	}
}
