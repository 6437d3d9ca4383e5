package livefiles_test

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/livefiles"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

// BenchmarkFiles is what one request costs on a real service, beside a command
// that does nothing.
func BenchmarkFiles(b *testing.B) {
	client := testenv.StartExecd(b, testenv.BareStore(b)).Dial()
	l := limits()
	l.OutputBytes, l.DiskBytes = 8*run.MiB, 100*run.MiB
	ctx := context.Background()
	sandbox, err := client.Create(ctx, execenv.Spec{ID: "bench", Image: testenv.BareImage, Limits: l})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = client.Destroy(ctx, "bench") })
	files, err := livefiles.Open(sandbox, l.OutputBytes)
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 50<<20)
	discard := func(livefiles.Entry) (io.Writer, error) { return io.Discard, nil }
	write := func(n int) func() error {
		return func() error {
			_, err := files.Write(ctx, "f", 0, bytes.NewReader(data[:n]))
			return err
		}
	}
	read := func() error { return files.Read(ctx, "f", livefiles.Part{}, discard) }
	for _, c := range []struct {
		name string
		run  func() error
		size int
	}{
		{"command", func() error {
			x, err := sandbox.Exec(ctx, execenv.ExecSpec{Argv: []string{"/.agentdock/agentdock-guest", "pack", "/workspace", "", "1", "none"}})
			if err == nil {
				_, err = x.Wait(ctx)
			}
			return err
		}, 0},
		{"stat", func() error { _, err := files.Stat(ctx, "/"); return err }, 0},
		{"list", func() error { _, err := files.List(ctx, "/", 1); return err }, 0},
		{"write_1KB", write(1000), 1000},
		{"read_1KB", read, 1000},
		{"write_50MB", write(len(data)), len(data)},
		{"read_50MB", read, len(data)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(c.size))
			for b.Loop() {
				if err := c.run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
