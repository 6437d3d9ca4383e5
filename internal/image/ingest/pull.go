package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/image"
)

// PullOptions say how to reach a registry.
type PullOptions struct {
	Options
	// Platform is "os/architecture[/variant]"; empty is this machine's.
	Platform string
	// Insecure allows plain HTTP to other hosts than this one.
	Insecure bool
	// Keychain finds credentials; nil means those "docker login" stored.
	Keychain authn.Keychain
	// Transport is used for requests; nil is the library's.
	Transport http.RoundTripper
}

// Pull makes an image from one in a registry.
func Pull(ctx context.Context, w *image.Writer, ref string, opt PullOptions) (image.Image, error) {
	platform, err := parsePlatform(opt.Platform)
	if err != nil {
		return image.Image{}, err
	}
	var nameOptions []name.Option
	if opt.Insecure {
		nameOptions = append(nameOptions, name.Insecure)
	}
	parsed, err := name.ParseReference(ref, nameOptions...)
	if err != nil {
		return image.Image{}, fault.Wrap(fault.Invalid, err, "cannot pull %q", ref)
	}
	keychain := opt.Keychain
	if keychain == nil {
		keychain = authn.DefaultKeychain
	}
	remoteOptions := []remote.Option{remote.WithAuthFromKeychain(keychain), remote.WithContext(ctx)}
	if opt.Transport != nil {
		remoteOptions = append(remoteOptions, remote.WithTransport(opt.Transport))
	}
	puller, err := remote.NewPuller(remoteOptions...)
	if err != nil {
		return image.Image{}, fmt.Errorf("cannot pull %q: %w", ref, err)
	}
	img, err := build(ctx, w, opt.Options, func(ctx context.Context, b *builder) error {
		b.opt.say("asking for %s", parsed)
		desc, err := puller.Get(ctx, parsed)
		if err != nil {
			return err
		}
		b.result.Source = parsed.Context().Digest(desc.Digest.String()).String()
		src := &registryBlobs{puller: puller, repository: parsed.Context(), first: desc}
		return b.assemble(ctx, src, desc.Descriptor, platform)
	})
	if err != nil {
		return image.Image{}, asPull(ctx, ref, err)
	}
	return img, nil
}

// registryBlobs are the blobs of one repository.
type registryBlobs struct {
	puller     *remote.Puller
	repository name.Repository
	first      *remote.Descriptor // what the reference led to, read already
}

func (r *registryBlobs) manifest(ctx context.Context, digest v1.Hash) (io.ReadCloser, error) {
	if digest == r.first.Digest {
		return io.NopCloser(bytes.NewReader(r.first.Manifest)), nil
	}
	desc, err := r.puller.Get(ctx, r.repository.Digest(digest.String()))
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(desc.Manifest)), nil
}

func (r *registryBlobs) blob(ctx context.Context, digest v1.Hash) (io.ReadCloser, error) {
	if err := checkDigest(digest); err != nil {
		return nil, err
	}
	layer, err := r.puller.Layer(ctx, r.repository.Digest(digest.String()))
	if err != nil {
		return nil, err
	}
	return layer.Compressed()
}

// asPull says what a registry's refusal means for the caller.
func asPull(ctx context.Context, ref string, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("cannot pull %q: %w", ref, cause)
	}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return fault.Wrap(f.Code, err, "cannot pull %q", ref)
	}
	answer, ok := errors.AsType[*transport.Error](err)
	if !ok {
		return fault.Wrap(fault.Unavailable, err, "cannot pull %q", ref)
	}
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.Wrap(fault.Denied, err, "cannot pull %q: the registry refuses these credentials, or it has no such "+
			"repository; log in with `docker login` and check the name", ref)
	case http.StatusNotFound:
		return fault.Wrap(fault.NotFound, err, "cannot pull %q: the registry has no such repository, tag or digest", ref)
	}
	return fault.Wrap(fault.Unavailable, err, "cannot pull %q", ref)
}
