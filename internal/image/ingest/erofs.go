package ingest

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// makeEROFS makes the image file name from the directory root, both in dir.
//
// Contents must not be inlined into the metadata (noinline_data): the sandbox
// kernel cannot map such files into memory, and exec fails. Blocks are not
// compressed, for the same reason.
func makeEROFS(ctx context.Context, dir, root, name string) error {
	mkfs, err := tool("mkfs.erofs", "erofs-utils")
	if err != nil {
		return err
	}
	// The superblock's checksum is left out because stamp changes the
	// superblock; the store's digest covers the whole file.
	cmd := exec.Command(mkfs, "--quiet", "-x-1",
		"-E", "noinline_data,force-inode-extended,nosbcrc",
		"-U", "00000000-0000-0000-0000-000000000000",
		name, root)
	cmd.Dir = dir
	cmd.Env = scrubbed()
	var said tail
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := runTree(ctx, cmd, false); err != nil {
		return fmt.Errorf("cannot make the image file: %w", said.withOutput("mkfs.erofs", err))
	}
	if err := stamp(filepath.Join(dir, name)); err != nil {
		return fmt.Errorf("cannot make the image file: %w", err)
	}
	return nil
}

// Where the superblock and its fields are; they are part of the on-disk
// format and the same in every version of it.
const (
	superblock     = 1024
	erofsMagic     = 0xE0F5E1E2
	featuresAt     = superblock + 8
	buildTimeAt    = superblock + 24
	buildTimeBytes = 12
	checksumBit    = 1
)

// stamp zeroes the build time in the superblock, so that the same tree gives
// the same digest. mkfs.erofs can only fix it together with the times of all
// files (-T), and those are needed: see mtime.
func stamp(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var head [16]byte
	if _, err := f.ReadAt(head[:], superblock); err != nil {
		return fmt.Errorf("cannot read superblock: %w", err)
	}
	if binary.LittleEndian.Uint32(head[:]) != erofsMagic {
		return fmt.Errorf("mkfs.erofs made something that is no EROFS image")
	}
	if binary.LittleEndian.Uint32(head[featuresAt-superblock:])&checksumBit != 0 {
		return fmt.Errorf("mkfs.erofs wrote a superblock checksum although told not to")
	}
	if _, err := f.WriteAt(make([]byte, buildTimeBytes), buildTimeAt); err != nil {
		return err
	}
	return f.Close()
}
