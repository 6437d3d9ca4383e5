package ingest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"maps"
	"path"
	"regexp"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/agentdock/agentdock/internal/fault"
)

// blobs gives the parts of an image by digest. What it gives is verified by
// its user, whatever the source has checked.
type blobs interface {
	manifest(ctx context.Context, digest v1.Hash) (io.ReadCloser, error)
	blob(ctx context.Context, digest v1.Hash) (io.ReadCloser, error)
}

// layoutBlobs are the blobs of an OCI layout.
type layoutBlobs struct{ files }

func (l layoutBlobs) blob(_ context.Context, digest v1.Hash) (io.ReadCloser, error) {
	r, _, err := l.open(path.Join("blobs", digest.Algorithm, digest.Hex))
	return r, err
}

func (l layoutBlobs) manifest(ctx context.Context, digest v1.Hash) (io.ReadCloser, error) {
	return l.blob(ctx, digest)
}

// layout takes in an OCI layout.
func (b *builder) layout(ctx context.Context, parts files, tag string, platform v1.Platform) error {
	data, err := b.document(parts, "index.json")
	if err != nil {
		return err
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(data))
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "its index.json is damaged")
	}
	desc, err := choose(index, tag, platform)
	if err != nil {
		return err
	}
	b.result.Source = strings.TrimSpace("oci-layout " + refName(desc))
	return b.assemble(ctx, layoutBlobs{parts}, desc, platform)
}

// Annotations that hold an image's name in a layout.
const (
	refAnnotation        = "org.opencontainers.image.ref.name"
	containerdAnnotation = "io.containerd.image.name"
)

func refName(desc v1.Descriptor) string {
	if n := desc.Annotations[containerdAnnotation]; n != "" {
		return n
	}
	return desc.Annotations[refAnnotation]
}

// choose picks the one image an index has for a tag and a platform.
func choose(index *v1.IndexManifest, tag string, platform v1.Platform) (v1.Descriptor, error) {
	var found []v1.Descriptor
	var offered []string
	for _, d := range index.Manifests {
		if !d.MediaType.IsImage() && !d.MediaType.IsIndex() {
			continue
		}
		offer := strings.TrimSpace(refName(d) + " " + platformName(d.Platform))
		if offer == unknownPlatform {
			continue // an attestation, not an image
		}
		offered = append(offered, offer)
		if tag != "" && !names(d.Annotations[refAnnotation], tag) && !names(d.Annotations[containerdAnnotation], tag) {
			continue
		}
		if d.Platform != nil && !d.Platform.Satisfies(platform) {
			continue
		}
		found = append(found, d)
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0 && tag != "":
		return v1.Descriptor{}, fault.New(fault.NotFound, "it has no image tagged %q for %s; it has %.500q", tag, platform.String(), offered)
	case len(found) == 0:
		return v1.Descriptor{}, fault.New(fault.NotFound, "it has no image for %s; it has %.500q", platform.String(), offered)
	case tag == "":
		return v1.Descriptor{}, fault.New(fault.Invalid, "it has %d images for %s; choose one with --tag: %.500q", len(found), platform.String(), offered)
	}
	// Several entries for one platform in one index: the first is the best
	// match, by the specification.
	return found[0], nil
}

const unknownPlatform = "unknown/unknown"

func platformName(p *v1.Platform) string {
	if p == nil {
		return ""
	}
	return p.String()
}

func parsePlatform(s string) (v1.Platform, error) {
	if s == "" {
		return v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, nil
	}
	p, err := v1.ParsePlatform(s)
	if err != nil || p.OS != "linux" || p.Architecture == "" {
		return v1.Platform{}, fault.New(fault.Invalid, "cannot use platform %q: write linux/amd64 or linux/arm64", s)
	}
	return *p, nil
}

// maxIndexDepth is how many indexes may lead to an image: the layout's own,
// one for platforms, and one to spare.
const maxIndexDepth = 3

// assemble flattens the image that desc leads to.
func (b *builder) assemble(ctx context.Context, src blobs, desc v1.Descriptor, platform v1.Platform) error {
	for depth := 0; desc.MediaType.IsIndex(); depth++ {
		if depth == maxIndexDepth {
			return fault.New(fault.Invalid, "its indexes are nested too deep")
		}
		raw, err := b.fetch(ctx, "index", src.manifest, desc)
		if err != nil {
			return err
		}
		index, err := v1.ParseIndexManifest(bytes.NewReader(raw))
		if err != nil {
			return fault.Wrap(fault.Invalid, err, "its index is damaged")
		}
		if desc, err = choose(index, "", platform); err != nil {
			return err
		}
	}
	if desc.MediaType != "" && !desc.MediaType.IsImage() {
		return fault.New(fault.Unsupported, "it is of the type %.100q, which is no image this program knows", desc.MediaType)
	}
	raw, err := b.fetch(ctx, "manifest", src.manifest, desc)
	if err != nil {
		return err
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "its manifest is damaged")
	}
	if err := b.checkManifest(manifest); err != nil {
		return err
	}
	if raw, err = b.fetch(ctx, "configuration", src.blob, manifest.Config); err != nil {
		return err
	}
	config, err := b.config(raw, len(manifest.Layers), platform)
	if err != nil {
		return err
	}
	for i, layer := range manifest.Layers {
		label := fmt.Sprintf("layer %d of %d", i+1, len(manifest.Layers))
		b.opt.say("reading %s, %d KiB", label, layer.Size>>10)
		r, err := src.blob(ctx, layer.Digest)
		if err != nil {
			return fmt.Errorf("cannot read %s: %w", label, err)
		}
		err = b.verifiedLayer(ctx, label, r, layer, config.RootFS.DiffIDs[i])
		r.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// checkManifest refuses what no layer has to be read for.
func (b *builder) checkManifest(m *v1.Manifest) error {
	if len(m.Layers) > b.opt.Limits.Layers {
		return fault.New(fault.Invalid, "it has %d layers, %d is the limit", len(m.Layers), b.opt.Limits.Layers)
	}
	left := b.opt.Limits.Bytes
	for i, l := range m.Layers {
		// A layer that is somewhere else would make us send requests to
		// wherever the image says.
		if len(l.URLs) > 0 || l.MediaType == types.DockerForeignLayer {
			return fault.New(fault.Invalid, "its layer %d is not part of the image but a link elsewhere, which is not followed", i+1)
		}
		if l.Size < 0 || l.Size > left {
			return fault.New(fault.Invalid, "its layers have more than %d bytes", b.opt.Limits.Bytes)
		}
		left -= l.Size
	}
	return nil
}

// fetch reads a document and verifies it.
func (b *builder) fetch(ctx context.Context, what string, open func(context.Context, v1.Hash) (io.ReadCloser, error), desc v1.Descriptor) ([]byte, error) {
	if err := checkDigest(desc.Digest); err != nil {
		return nil, err
	}
	if desc.Size < 0 || desc.Size > b.opt.Limits.ManifestBytes {
		return nil, fault.New(fault.Invalid, "its %s has %d bytes, %d is the limit", what, desc.Size, b.opt.Limits.ManifestBytes)
	}
	r, err := open(ctx, desc.Digest)
	if err != nil {
		return nil, fmt.Errorf("cannot read its %s: %w", what, err)
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, desc.Size+1))
	if err != nil && int64(len(data)) <= desc.Size {
		return nil, fmt.Errorf("cannot read its %s: %w", what, err)
	}
	if got := sha256.Sum256(data); hex.EncodeToString(got[:]) != desc.Digest.Hex {
		return nil, fault.New(fault.Invalid, "its %s does not have the digest %s it should have", what, desc.Digest)
	}
	return data, nil
}

func checkDigest(h v1.Hash) error {
	if _, err := hex.DecodeString(h.Hex); h.Algorithm != "sha256" || len(h.Hex) != 64 || err != nil {
		return fault.New(fault.Unsupported, "it is addressed by the digest %.100q; only sha256 is supported", h.String())
	}
	return nil
}

// config reads what is needed of an image's configuration.
func (b *builder) config(raw []byte, layers int, platform v1.Platform) (*v1.ConfigFile, error) {
	config, err := v1.ParseConfigFile(bytes.NewReader(raw))
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "its configuration is damaged")
	}
	if config.OS != "" && config.OS != platform.OS || config.Architecture != "" && config.Architecture != platform.Architecture {
		return nil, fault.New(fault.Invalid, "it is for %.50s/%.50s, and %s is wanted", config.OS, config.Architecture, platform.String())
	}
	if layers > b.opt.Limits.Layers {
		return nil, fault.New(fault.Invalid, "it has %d layers, %d is the limit", layers, b.opt.Limits.Layers)
	}
	if len(config.RootFS.DiffIDs) != layers {
		return nil, fault.New(fault.Invalid, "it has %d layers, and its configuration describes %d", layers, len(config.RootFS.DiffIDs))
	}
	b.result.Config.WorkingDir = config.Config.WorkingDir
	b.result.Config.Env = maps.Collect(environment(config.Config.Env))
	return config, nil
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// environment yields the well-formed variables. The rest could not be given
// to a program anyway.
func environment(env []string) func(yield func(name, value string) bool) {
	return func(yield func(string, string) bool) {
		for _, e := range env {
			name, value, ok := strings.Cut(e, "=")
			if ok && variable.MatchString(name) && !strings.Contains(value, "\x00") && !yield(name, value) {
				return
			}
		}
	}
}

// verifiedLayer flattens a layer whose compressed bytes must match desc (when
// it has a digest) and whose uncompressed bytes must match diffID.
func (b *builder) verifiedLayer(ctx context.Context, label string, r io.Reader, desc v1.Descriptor, diffID v1.Hash) error {
	if err := checkDigest(diffID); err != nil {
		return err
	}
	sum := sha256.New()
	blob := &measured{r: &bounded{ctx: ctx, r: r, left: b.opt.Limits.Bytes}, hash: sha256.New()}
	err := b.hashedLayer(ctx, label, blob, sum)
	if ctx.Err() != nil {
		return err
	}
	// The rest is read after an error too: that the bytes are not the
	// promised ones explains any other complaint about them.
	_, _ = io.CopyN(io.Discard, blob, max(desc.Size-blob.bytes, 0))
	if desc.Digest != (v1.Hash{}) {
		if err := checkDigest(desc.Digest); err != nil {
			return err
		}
		if blob.bytes < desc.Size {
			return fault.New(fault.Invalid, "cannot use %s: it is truncated or replaced, %d of %d bytes came", label, blob.bytes, desc.Size)
		}
		if got := hex.EncodeToString(blob.hash.Sum(nil)); got != desc.Digest.Hex {
			return fault.New(fault.Invalid, "cannot use %s: its digest is sha256:%s, and the manifest says %s", label, got, desc.Digest)
		}
	}
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != diffID.Hex {
		return fault.New(fault.Invalid, "cannot use %s: unpacked, its digest is sha256:%s, and the configuration says %s", label, got, diffID)
	}
	return nil
}

func (b *builder) hashedLayer(ctx context.Context, label string, blob io.Reader, sum hash.Hash) error {
	plain, err := decompress(blob)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "cannot unpack %s", label)
	}
	defer plain.Close()
	return b.flat.add(ctx, label, io.TeeReader(plain, sum))
}

// measured hashes and counts what is read through it.
type measured struct {
	r     io.Reader
	hash  hash.Hash
	bytes int64
}

func (m *measured) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	m.hash.Write(p[:n])
	m.bytes += int64(n)
	return n, err
}
