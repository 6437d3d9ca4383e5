package e2b

import (
	"context"
	"io/fs"
	"path"
	"strconv"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/agentdock/agentdock/internal/compat/e2b/filesystempb"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/livefiles"
)

// filesystem serves filesystem.Filesystem.
type filesystem struct{ f *Facade }

func (s *filesystem) Stat(ctx context.Context, req *connect.Request[pb.StatRequest]) (*connect.Response[pb.StatResponse], error) {
	e, err := withFiles(ctx, func(files *livefiles.Files) (livefiles.Entry, error) {
		return files.Stat(ctx, inHome(req.Msg.GetPath()))
	})
	return respond(&pb.StatResponse{Entry: entryInfo(e)}, err)
}

func (s *filesystem) MakeDir(ctx context.Context, req *connect.Request[pb.MakeDirRequest]) (*connect.Response[pb.MakeDirResponse], error) {
	e, err := withFiles(ctx, func(files *livefiles.Files) (livefiles.Entry, error) {
		return files.MakeDir(ctx, inHome(req.Msg.GetPath()))
	})
	return respond(&pb.MakeDirResponse{Entry: entryInfo(e)}, err)
}

func (s *filesystem) Move(ctx context.Context, req *connect.Request[pb.MoveRequest]) (*connect.Response[pb.MoveResponse], error) {
	e, err := withFiles(ctx, func(files *livefiles.Files) (livefiles.Entry, error) {
		return files.Move(ctx, inHome(req.Msg.GetSource()), inHome(req.Msg.GetDestination()))
	})
	return respond(&pb.MoveResponse{Entry: entryInfo(e)}, err)
}

func (s *filesystem) ListDir(ctx context.Context, req *connect.Request[pb.ListDirRequest]) (*connect.Response[pb.ListDirResponse], error) {
	depth := int(min(req.Msg.GetDepth(), 1<<20))
	if depth == 0 {
		depth = 1
	}
	entries, err := withFiles(ctx, func(files *livefiles.Files) ([]livefiles.Entry, error) {
		return files.List(ctx, inHome(req.Msg.GetPath()), depth)
	})
	res := &pb.ListDirResponse{}
	for _, e := range entries {
		res.Entries = append(res.Entries, entryInfo(e))
	}
	return respond(res, err)
}

// Remove removes what is there; that nothing is there is what was wanted.
func (s *filesystem) Remove(ctx context.Context, req *connect.Request[pb.RemoveRequest]) (*connect.Response[pb.RemoveResponse], error) {
	_, err := withFiles(ctx, func(files *livefiles.Files) (struct{}, error) {
		err := files.Remove(ctx, inHome(req.Msg.GetPath()))
		if fault.Is(err, fault.NotFound) {
			err = nil
		}
		return struct{}{}, err
	})
	return respond(&pb.RemoveResponse{}, err)
}

// withFiles does something with the files of the request's sandbox.
func withFiles[T any](ctx context.Context, do func(*livefiles.Files) (T, error)) (T, error) {
	files, err := exchangeOf(ctx).files()
	if err != nil {
		var none T
		return none, err
	}
	return do(files)
}

func respond[T any](msg *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, asConnect(err)
	}
	return connect.NewResponse(msg), nil
}

// entryInfo describes a file to a client. A symlink is described as one, with
// the kind of what it leads to, as E2B's own daemon does.
func entryInfo(e livefiles.Entry) *pb.EntryInfo {
	info := &pb.EntryInfo{
		Name: text(path.Base(e.Path)), Path: text(e.Path), Size: e.Size, Mode: e.Mode,
		Permissions: permissions(e), Owner: userName(e.UID), Group: userName(e.GID),
		ModifiedTime: timestamppb.New(e.MTime), Type: fileTypes[e.Kind],
	}
	if e.Kind == livefiles.Symlink {
		target := text(string(e.Target))
		info.SymlinkTarget = &target
		if kind := fileTypes[e.TargetKind]; kind != pb.FileType_FILE_TYPE_UNSPECIFIED {
			info.Type = kind
		}
	}
	return info
}

var fileTypes = map[livefiles.Kind]pb.FileType{
	livefiles.File: pb.FileType_FILE_TYPE_FILE, livefiles.Directory: pb.FileType_FILE_TYPE_DIRECTORY,
	livefiles.Symlink: pb.FileType_FILE_TYPE_SYMLINK,
}

func permissions(e livefiles.Entry) string {
	mode := fs.FileMode(e.Mode & 0o777)
	switch e.Kind {
	case livefiles.Directory:
		mode |= fs.ModeDir
	case livefiles.Symlink:
		mode |= fs.ModeSymlink
	case livefiles.Other:
		mode |= fs.ModeIrregular
	}
	return mode.String()
}

// userName is what the users of a sandbox are called; a group has the name of
// its user.
func userName(id uint32) string {
	switch id {
	case 0:
		return "root"
	case execenv.UID:
		return "agent"
	}
	return strconv.FormatUint(uint64(id), 10)
}
