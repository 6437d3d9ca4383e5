package s3

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/blob/blobtest"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/testenv"
)

func TestContract(t *testing.T) {
	testenv.RequireS3(t)
	for _, prefix := range []string{"", "team/x/"} {
		t.Run("prefix "+prefix, func(t *testing.T) {
			h := blobtest.Harness{New: func(t *testing.T) blobtest.Storage { return storage(t, t.TempDir(), prefix) }}
			if os.Geteuid() == 0 {
				h.NewSmall = func(t *testing.T) blobtest.Storage { return storage(t, smallDisk(t), prefix) }
			}
			blobtest.Run(t, h)
		})
	}
	t.Run("full disk", func(t *testing.T) { testenv.RequireRoot(t) })
}

func storage(t *testing.T, dir, prefix string) blobtest.Storage {
	t.Helper()
	server := testenv.StartS3(t, dir)
	cfg := config(server)
	cfg.Prefix = prefix
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return blobtest.Storage{
		Store: s,
		// Files rather than objects: parts of uploads are files too.
		Files: func(t *testing.T) []string { return files(t, server.Dir) },
		Away: func(*testing.T) func() {
			server.Stop()
			return server.Start
		},
	}
}

func config(server *testenv.S3) Config {
	return Config{
		Endpoint: server.Endpoint, Region: server.Region, Bucket: server.Bucket,
		AccessKey: server.AccessKey, SecretKey: server.SecretKey, PartBytes: 5 << 20,
	}
}

func files(t *testing.T, dir string) []string {
	var names []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// smallDisk has room for one part of the blob that does not fit.
func smallDisk(t *testing.T) string {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=7m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestWhatCannotBeUsedIsUnavailable(t *testing.T) {
	testenv.RequireS3(t)
	server := testenv.StartS3(t, t.TempDir())
	for name, change := range map[string]func(*Config){
		"bucket": func(c *Config) { c.Bucket = "no-such-bucket" },
		"secret": func(c *Config) { c.SecretKey = "wrong" },
	} {
		cfg := config(server)
		change(&cfg)
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Ping(t.Context()); !fault.Is(err, fault.Unavailable) {
			t.Errorf("wrong %s: ping says %v", name, err)
		}
		if _, _, err := s.Open(t.Context(), "a/b"); !fault.Is(err, fault.Unavailable) {
			t.Errorf("wrong %s: open says %v", name, err)
		}
		s.Close()
	}
}

func TestSettingsThatCannotWorkAreRefused(t *testing.T) {
	good := Config{Endpoint: "https://s3.example.com", Bucket: "b"}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"scheme": func(c *Config) { c.Endpoint = "ftp://s3.example.com" },
		"path":   func(c *Config) { c.Endpoint = "https://s3.example.com/x" },
		"host":   func(c *Config) { c.Endpoint = "s3.example.com" },
		"bucket": func(c *Config) { c.Bucket = "" },
		"prefix": func(c *Config) { c.Prefix = "x" },
		"parts":  func(c *Config) { c.PartBytes = 1 << 20 },
	} {
		cfg := good
		change(&cfg)
		if _, err := New(cfg); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
