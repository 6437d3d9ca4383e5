package main

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/api"
)

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// sizeOfTerminal is what a terminal says of itself, and a usual size where it
// says nothing that can be.
func sizeOfTerminal(f *os.File) api.TerminalSize {
	ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || ws.Col == 0 || ws.Row == 0 {
		return api.TerminalSize{Cols: 80, Rows: 24}
	}
	return api.TerminalSize{Cols: int(ws.Col), Rows: int(ws.Row)}
}

// makeRaw lets every byte that is typed through as it is, until restore is
// called.
func makeRaw(f *os.File) (restore func(), _ error) {
	fd := int(f.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	raw := *before
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &raw); err != nil {
		return nil, err
	}
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, before) }, nil
}
