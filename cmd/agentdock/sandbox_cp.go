package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/artifact"
	"github.com/agentdock/agentdock/internal/dirpack"
	"github.com/agentdock/agentdock/internal/fault"
)

func newSandboxCopy() *cobra.Command {
	return &cobra.Command{
		Use:   "cp FROM TO",
		Short: "Copy a file or a directory into a sandbox, or out of it",
		Long: `Copy a file or a directory into a sandbox, or out of it. The side in the sandbox is
written ID:PATH; the path is relative to the workspace, and for a file may be absolute.

Of a directory that comes out, regular files are kept and all else is left out. Files
of the same name here are replaced.`,
		Example: `  agentdock sandbox cp . ID:app
  agentdock sandbox cp ID:app/dist build`,
		Args: cobra.ExactArgs(2),
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, args []string) error {
			fromID, from, fromThere := strings.Cut(args[0], ":")
			toID, to, toThere := strings.Cut(args[1], ":")
			var err error
			switch {
			case fromThere == toThere:
				return fault.New(fault.Invalid, "cannot copy from %q to %q: one of them, and not both, is in a sandbox, as ID:PATH", args[0], args[1])
			case toThere:
				err = copyIn(cmd.Context(), c, args[0], toID, to)
			default:
				err = copyOut(cmd.Context(), c, fromID, from, args[1])
			}
			if err != nil {
				return fmt.Errorf("cannot copy: %w", err)
			}
			return nil
		}),
	}
}

func copyIn(ctx context.Context, c *client.Client, from, id, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		dir, err := dirpack.Open(from)
		if err != nil {
			return err
		}
		defer dir.Close()
		return packInto(ctx, dir, func(r io.Reader) error { return c.PutArchive(ctx, id, to, r) })
	}
	if !info.Mode().IsRegular() {
		return fault.New(fault.Invalid, "%q is neither a file nor a directory", from)
	}
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	if to == "" || strings.HasSuffix(to, "/") {
		to = path.Join(to, filepath.Base(from))
	}
	_, err = c.WriteFile(ctx, id, to, f)
	return err
}

// packInto packs and sends at once. If both sides fail, the side that reads the
// files knows why.
func packInto(ctx context.Context, dir *dirpack.Dir, send func(io.Reader) error) error {
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := dir.Pack(ctx, w)
		packed <- err
		w.CloseWithError(err)
	}()
	err := send(r)
	r.CloseWithError(errNoMore) // so that the packer ends, whatever it is doing
	if packErr := <-packed; packErr != nil && !errors.Is(packErr, errNoMore) {
		return packErr
	}
	return err
}

func copyOut(ctx context.Context, c *client.Client, id, from, to string) error {
	there, err := c.StatFile(ctx, id, "./"+from)
	if strings.HasPrefix(from, "/") {
		there, err = c.StatFile(ctx, id, from)
	}
	if err != nil {
		return err
	}
	if there.Kind == "directory" {
		return copyDirOut(ctx, c, id, from, to)
	}
	if info, err := os.Stat(to); err == nil && info.IsDir() {
		to = filepath.Join(to, path.Base(from))
	}
	return copyFileOut(ctx, c, id, from, to)
}

// copyFileOut writes beside the file it is to become, so that one that breaks
// off is never taken for whole.
func copyFileOut(ctx context.Context, c *client.Client, id, from, to string) error {
	part, err := os.CreateTemp(filepath.Dir(to), ".agentdock-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(part.Name()) }() // unless it has its name by then
	err = c.ReadFile(ctx, id, from, part)
	if err := errors.Join(err, part.Chmod(0o644), part.Close()); err != nil {
		return err
	}
	return os.Rename(part.Name(), to)
}

// copyDirOut writes what a sandbox has packed, which is hostile: nothing of it
// lands outside of the directory.
func copyDirOut(ctx context.Context, c *client.Client, id, from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	r, w := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := c.GetArchive(ctx, id, from, nil, w)
		sent <- err
		w.CloseWithError(err)
	}()
	_, err = artifact.Collect(r, root, []string{"**"}, artifact.DefaultLimits())
	r.CloseWithError(errNoMore)
	if sendErr := <-sent; sendErr != nil && !errors.Is(sendErr, errNoMore) {
		return sendErr
	}
	return err
}
