package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// asyncVerbs write without a call that says how it went.
var asyncVerbs = map[string]attempt{
	"fill-async": func(args []string) error {
		fd, err := unix.Open(arg(args, 0), unix.O_WRONLY|unix.O_CREAT, 0o600)
		if err != nil {
			return err
		}
		var context uintptr
		if err := call(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&context))); err != nil {
			return err
		}
		block := make([]byte, 1<<20)
		for written := 0; written < num(args, 1); {
			n, err := writeAsync(context, fd, block, written)
			if err != nil {
				return err
			}
			written += n
		}
		return nil
	},
}

// writeAsync submits one write and waits for its end.
func writeAsync(context uintptr, fd int, block []byte, offset int) (int, error) {
	const pwrite = 1
	// As in linux/aio_abi.h.
	request := struct {
		data           uint64
		key, flags     uint32
		opcode         uint16
		priority       int16
		fd             uint32
		buffer         uintptr
		bytes          uint64
		offset         int64
		_              uint64
		flags2, result uint32
	}{opcode: pwrite, fd: uint32(fd), buffer: uintptr(unsafe.Pointer(&block[0])), bytes: uint64(len(block)), offset: int64(offset)}
	requests := [1]unsafe.Pointer{unsafe.Pointer(&request)}
	if err := call(unix.SYS_IO_SUBMIT, context, 1, uintptr(unsafe.Pointer(&requests))); err != nil {
		return 0, err
	}
	var event struct {
		data, object   uint64
		result, second int64
	}
	if err := call(unix.SYS_IO_GETEVENTS, context, 1, 1, uintptr(unsafe.Pointer(&event)), 0); err != nil {
		return 0, err
	}
	if event.result < 0 {
		return 0, unix.Errno(-event.result)
	}
	return int(event.result), nil
}
