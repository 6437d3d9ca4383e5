package httpapi

import (
	"context"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/live"
	"github.com/agentdock/agentdock/internal/livefiles"
)

func (h *handlers) files(ctx context.Context, sandbox string) (*livefiles.Files, error) {
	box, err := h.open(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	return box.Files()
}

func (h *handlers) ListFiles(ctx context.Context, r ListFilesRequestObject) (ListFilesResponseObject, error) {
	if r.Params.Depth == 0 {
		r.Params.Depth = 1
	}
	if r.Params.Depth < 0 || r.Params.Depth > 100 {
		return nil, refuse(api.ProblemCodeInvalid, "a depth is 1 to 100")
	}
	f, err := h.files(ctx, r.SandboxID)
	if err != nil {
		return nil, err
	}
	entries, err := f.List(ctx, r.Params.Path, r.Params.Depth)
	if err != nil {
		return nil, err
	}
	list := api.FileList{Entries: make([]api.FileEntry, 0, len(entries))}
	for _, e := range entries {
		list.Entries = append(list.Entries, fromFile(e))
	}
	return ListFiles200JSONResponse(list), nil
}

func (h *handlers) StatFile(ctx context.Context, r StatFileRequestObject) (StatFileResponseObject, error) {
	f, err := h.files(ctx, r.SandboxID)
	if err != nil {
		return nil, err
	}
	e, err := f.Stat(ctx, r.Params.Path)
	return StatFile200JSONResponse(fromFile(e)), err
}

func (h *handlers) MakeDirectory(ctx context.Context, r MakeDirectoryRequestObject) (MakeDirectoryResponseObject, error) {
	f, err := h.files(ctx, r.SandboxID)
	if err != nil {
		return nil, err
	}
	e, err := f.MakeDir(ctx, r.Body.Path)
	return MakeDirectory201JSONResponse(fromFile(e)), err
}

func (h *handlers) MoveFile(ctx context.Context, r MoveFileRequestObject) (MoveFileResponseObject, error) {
	f, err := h.files(ctx, r.SandboxID)
	if err != nil {
		return nil, err
	}
	e, err := f.Move(ctx, r.Body.From, r.Body.To)
	return MoveFile200JSONResponse(fromFile(e)), err
}

func (h *handlers) RemoveFile(ctx context.Context, r RemoveFileRequestObject) (RemoveFileResponseObject, error) {
	f, err := h.files(ctx, r.SandboxID)
	if err == nil {
		err = f.Remove(ctx, r.Params.Path)
	}
	return RemoveFile204Response{}, err
}

func (h *handlers) WriteFile(ctx context.Context, r WriteFileRequestObject) (WriteFileResponseObject, error) {
	if r.Params.Mode < 0 || r.Params.Mode > 0o777 {
		return nil, refuse(api.ProblemCodeInvalid, "a mode is 0 to 511")
	}
	f, err := h.files(ctx, r.SandboxID)
	if err != nil {
		return nil, err
	}
	e, err := f.Write(ctx, r.Params.Path, uint32(r.Params.Mode), r.Body)
	return WriteFile200JSONResponse(fromFile(e)), err
}

func (h *handlers) ReadFile(ctx context.Context, r ReadFileRequestObject) (ReadFileResponseObject, error) {
	if r.Params.Offset < 0 || r.Params.Length < 0 {
		return nil, refuse(api.ProblemCodeInvalid, "an offset and a length are not negative")
	}
	f, err := h.files(ctx, r.SandboxID)
	if err != nil {
		return nil, err
	}
	return fileContent{ctx: ctx, files: f, params: r.Params, timing: h.cfg.Timing}, nil
}

// fileContent is hostile bytes on their way to somebody's disk.
type fileContent struct {
	ctx    context.Context
	files  *livefiles.Files
	params api.ReadFileParams
	timing Timing
}

func (c fileContent) VisitReadFileResponse(w http.ResponseWriter) error {
	part := livefiles.Part{Offset: c.params.Offset, Length: c.params.Length}
	return c.files.Read(c.ctx, c.params.Path, part, func(e livefiles.Entry) (io.Writer, error) {
		length := max(0, e.Size-part.Offset)
		if part.Length > 0 {
			length = min(length, part.Length)
		}
		h := w.Header()
		h.Set("Content-Type", bytesType)
		h.Set("Content-Disposition", disposition(path.Base(e.Path)))
		h.Set("Content-Length", strconv.FormatInt(length, 10))
		h.Set("Accept-Ranges", "none")
		w.WriteHeader(http.StatusOK)
		return steadyWriter(w, c.timing.Body), nil
	})
}

func (h *handlers) PutArchive(ctx context.Context, r PutArchiveRequestObject) (PutArchiveResponseObject, error) {
	box, err := h.open(ctx, r.SandboxID)
	if err == nil {
		err = box.Put(ctx, r.Params.Dir, r.Body)
	}
	return PutArchive204Response{}, err
}

func (h *handlers) GetArchive(ctx context.Context, r GetArchiveRequestObject) (GetArchiveResponseObject, error) {
	box, err := h.open(ctx, r.SandboxID)
	if err != nil {
		return nil, err
	}
	return archive{ctx: ctx, box: box, request: execenv.ArchiveRequest{Dir: r.Params.Dir, Patterns: r.Params.Pattern}, timing: h.cfg.Timing}, nil
}

// archive is a tar that a sandbox packs while it is sent.
type archive struct {
	ctx     context.Context
	box     *live.Handle
	request execenv.ArchiveRequest
	timing  Timing
}

func (a archive) VisitGetArchiveResponse(w http.ResponseWriter) error {
	out := &begun{w: w, to: steadyWriter(w, a.timing.Body)}
	err := a.box.Fetch(a.ctx, a.request, out)
	if err == nil {
		_, err = out.Write(nil)
	}
	return err // fail cuts the connection if the answer has begun
}

// begun sends the head of an answer when there is something to send, so that
// what fails before is answered with a problem.
type begun struct {
	w    http.ResponseWriter
	to   io.Writer
	sent bool
}

func (b *begun) Write(p []byte) (int, error) {
	if !b.sent {
		b.sent = true
		h := b.w.Header()
		h.Set("Content-Type", tarType)
		h.Set("Content-Disposition", `attachment; filename="files.tar"`)
		b.w.WriteHeader(http.StatusOK)
	}
	return b.to.Write(p)
}

func (h *handlers) WatchFiles(ctx context.Context, r WatchFilesRequestObject) (WatchFilesResponseObject, error) {
	f, err := h.files(ctx, r.SandboxID)
	if err != nil {
		return nil, err
	}
	// What cannot be watched is said before the stream begins.
	if e, err := f.Stat(ctx, r.Params.Path); err != nil {
		return nil, err
	} else if e.Kind != livefiles.Directory {
		return nil, refuse(api.ProblemCodeInvalid, "only a directory can be watched")
	}
	return &watchStream{events: h.events(ctx), files: f, params: r.Params}, nil
}

// watchStream sends what happens in a directory.
type watchStream struct {
	*events
	files  *livefiles.Files
	params api.WatchFilesParams
}

func (s *watchStream) VisitWatchFilesResponse(w http.ResponseWriter) error {
	return s.serve(w, func(ctx context.Context) error {
		return s.files.Watch(ctx, s.params.Path, s.params.Recursive,
			func() error { return s.send("ready", 0, api.WatchEvent{Type: "ready"}) },
			func(e livefiles.Event) error {
				return s.send(string(e.Kind), 0, api.WatchEvent{Type: string(e.Kind), Path: strings.ToValidUTF8(e.Path, "\uFFFD")})
			})
	})
}

func fromFile(e livefiles.Entry) api.FileEntry {
	kind := string(e.Kind)
	if e.Kind == livefiles.Directory {
		kind = "directory"
	}
	return api.FileEntry{
		Path: strings.ToValidUTF8(e.Path, "\uFFFD"), Kind: kind, Bytes: e.Size, Mode: int(e.Mode), UID: int64(e.UID), GID: int64(e.GID),
		ModifiedAt: utc(e.MTime), Target: strings.ToValidUTF8(string(e.Target), "\uFFFD"),
	}
}
