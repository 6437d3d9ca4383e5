package ingest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/agentdock/agentdock/infrastructure/sandbox"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/image"
)

// BuildOptions are for the default image.
type BuildOptions struct {
	Options
	// Force builds even if the store has the image from the same recipe.
	Force bool
	// SourcesFile is a file of package sources in one of apt's formats, to
	// use instead of the host's own.
	SourcesFile string
}

// BuildDefault makes the default image from the packages of the host's own
// distribution. When the store already has the image from the same recipe it
// returns that, and built is false.
func BuildDefault(ctx context.Context, w *image.Writer, opt BuildOptions) (img image.Image, built bool, err error) {
	if opt.Name == "" {
		opt.Name = image.Default
	}
	host := hostRoot()
	d, err := hostDistribution(host)
	if err != nil {
		return image.Image{}, false, err
	}
	var sources string
	if opt.SourcesFile != "" {
		data, err := os.ReadFile(opt.SourcesFile)
		if err != nil {
			return image.Image{}, false, fault.Wrap(fault.NotFound, err, "cannot read package sources")
		}
		sources = string(data)
	} else {
		list, err := archiveSources(host, d)
		if err != nil {
			return image.Image{}, false, err
		}
		sources = deb822(list)
	}
	r := recipe(d)
	if have, err := w.Resolve(opt.Name); err == nil && have.Recipe == r && !opt.Force {
		return have, false, nil
	}
	mmdebstrap, err := tool("mmdebstrap", "mmdebstrap")
	if err != nil {
		return image.Image{}, false, err
	}
	opt.Config = image.Config{
		Env:        map[string]string{"LANG": "C.UTF-8"},
		WorkingDir: agentHome,
	}
	img, err = build(ctx, w, opt.Options, func(ctx context.Context, b *builder) error {
		b.result.Recipe = r
		b.result.Source = d.String()
		return b.debian(ctx, mmdebstrap, d, sources)
	})
	if err != nil {
		return image.Image{}, false, fmt.Errorf("cannot build the default image: %w", err)
	}
	return img, true, nil
}

// recipeVersion changes when the same packages give another image.
const recipeVersion = "1"

// recipe identifies what the default image is made from. The state of the
// mirror is no part of it: newer packages are taken with Force.
func recipe(d distribution) string {
	h := sha256.New()
	for _, part := range append([]string{recipeVersion, d.String(), runtime.GOARCH, sandbox.Trim}, sandbox.Packages()...) {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// debian runs mmdebstrap and flattens the archive it writes as it comes. All
// it needs on disk is below the stage, and it runs in PID and mount namespaces
// of its own, so that no process and no mount outlives it.
func (b *builder) debian(ctx context.Context, mmdebstrap string, d distribution, sources string) error {
	sourcesFile := filepath.Join(b.dir, "apt.sources")
	trimFile := filepath.Join(b.dir, "trim.sh")
	temp := filepath.Join(b.dir, "bootstrap")
	err := errors.Join(
		os.WriteFile(sourcesFile, []byte(sources), 0o600),
		os.WriteFile(trimFile, []byte(sandbox.Trim), 0o600),
		os.Mkdir(temp, 0o700),
	)
	if err != nil {
		return err
	}
	cmd := exec.Command(mmdebstrap,
		"--variant=apt", "--mode=root", "--format=tar",
		"--include="+strings.Join(sandbox.Packages(), ","),
		// Not unpacked at all, which is faster than removing it later.
		"--dpkgopt=path-exclude=/usr/share/man/*",
		"--dpkgopt=path-exclude=/usr/share/locale/*",
		"--dpkgopt=path-exclude=/usr/share/doc/*",
		"--dpkgopt=path-include=/usr/share/doc/*/copyright",
		`--customize-hook=chroot "$1" /bin/sh -s <"$AGENTDOCK_TRIM"`,
		"--customize-hook=rm -f \"$1\"/etc/dpkg/dpkg.cfg.d/99mmdebstrap",
		d.codename, "-", sourcesFile)
	cmd.Dir = b.dir
	cmd.Env = scrubbed(append(proxies(),
		"HOME="+temp, "TMPDIR="+temp, "AGENTDOCK_TRIM="+trimFile, "DEBIAN_FRONTEND=noninteractive",
		// A day's builds from the same packages are the same.
		"SOURCE_DATE_EPOCH="+strconv.FormatInt(time.Now().UTC().Truncate(24*time.Hour).Unix(), 10))...)
	log := &stepLog{say: func(s string) { b.opt.say("%s", s) }}
	cmd.Stderr = log
	// A pipe of the system's and not of the command's: Wait would close that
	// before the archive's end was read.
	pr, pw, err := os.Pipe()
	if err != nil {
		return err
	}
	defer pr.Close()
	cmd.Stdout = pw

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() {
		err := runTree(ctx, cmd, true)
		pw.Close()
		ended <- err
	}()
	stop := log.beat()
	flattened := b.layer(ctx, "the packages", pr)
	if flattened != nil {
		cancel(flattened) // nobody reads what it writes any more
	}
	err = <-ended
	stop()
	switch {
	case flattened != nil && (err == nil || errors.Is(err, flattened)):
		return flattened
	case err != nil && ctx.Err() != nil && context.Cause(ctx) != flattened:
		return context.Cause(ctx)
	case err != nil:
		return log.said.withOutput("mmdebstrap", err)
	}
	return nil
}

// proxies are the only variables of ours that the package manager gets.
func proxies() []string {
	var env []string
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy"} {
		if value := os.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}
