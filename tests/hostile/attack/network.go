package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const netTimeout = 2 * time.Second

// networkVerbs try to talk to anybody.
var networkVerbs = map[string]attempt{
	"connect": connect,
	"connect-unix": func(args []string) error {
		c, err := net.DialTimeout("unix", arg(args, 0), netTimeout)
		if err != nil {
			return err
		}
		return c.Close()
	},
	// send wants an answer: a datagram that was only sent has reached nobody.
	"send": func(args []string) error {
		c, err := net.DialTimeout("udp", net.JoinHostPort(spelled(arg(args, 0)), arg(args, 1)), netTimeout)
		if err != nil {
			return err
		}
		_ = c.SetDeadline(time.Now().Add(netTimeout))
		if _, err := c.Write([]byte("hello")); err != nil {
			return err
		}
		_, err = c.Read(make([]byte, 64))
		return err
	},
	"resolve": func(args []string) error {
		ctx, cancel := context.WithTimeout(context.Background(), netTimeout)
		defer cancel()
		_, err := net.DefaultResolver.LookupHost(ctx, arg(args, 0))
		return err
	},
	// resolve-at asks a resolver of its own choice.
	"resolve-at": func(args []string) error {
		ctx, cancel := context.WithTimeout(context.Background(), netTimeout)
		defer cancel()
		r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: netTimeout}).DialContext(ctx, arg(args, 1), arg(args, 2))
		}}
		_, err := r.LookupHost(ctx, arg(args, 0))
		return err
	},
	"interfaces": func([]string) error {
		all, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, i := range all {
			if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
				fmt.Println(i.Name)
				return nil
			}
		}
		return errors.New("there is loopback only")
	},
	"add-address": func(args []string) error { return addAddress(arg(args, 0), arg(args, 1)) },
	"add-route": func([]string) error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		// RTM_NEWROUTE, a default route by lo.
		m := make([]byte, 36)
		*(*uint32)(unsafe.Pointer(&m[0])) = 36
		*(*uint16)(unsafe.Pointer(&m[4])) = unix.RTM_NEWROUTE
		*(*uint16)(unsafe.Pointer(&m[6])) = unix.NLM_F_REQUEST | unix.NLM_F_CREATE | unix.NLM_F_ACK
		m[16], m[20], m[21], m[22], m[23] = unix.AF_INET, unix.RT_TABLE_MAIN, unix.RTPROT_BOOT, unix.RT_SCOPE_LINK, unix.RTN_UNICAST
		*(*uint32)(unsafe.Pointer(&m[28])) = 8<<0 | unix.RTA_OIF<<16
		*(*uint32)(unsafe.Pointer(&m[32])) = 1
		if err := unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return err
		}
		b := make([]byte, 4096)
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err != nil || n < 20 {
			return fmt.Errorf("no answer: %w", err)
		}
		if code := *(*int32)(unsafe.Pointer(&b[16])); code != 0 {
			return syscall.Errno(-code)
		}
		return nil
	},
	"tunnel": func([]string) error { return tunnel() },
	"tunnel-then-connect": func(args []string) error {
		if err := tunnel(); err != nil {
			return err
		}
		return connect(args)
	},
	"ping": func(args []string) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP)
		if err != nil {
			return err
		}
		ip := net.ParseIP(arg(args, 0)).To4()
		_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2})
		if err := unix.Sendto(fd, []byte{8, 0, 0, 0, 0, 0, 0, 1}, 0, &unix.SockaddrInet4{Addr: [4]byte(ip)}); err != nil {
			return err
		}
		_, _, err = unix.Recvfrom(fd, make([]byte, 64), 0)
		return err
	},
	// with-neighbours gives this machine an address, a service on it, and lets
	// another verb find it. It is what a control needs: an own network
	// namespace, in which it does no harm.
	"with-service": func(args []string) error {
		if err := addAddress("lo", "127.0.0.1"); err != nil {
			return err
		}
		if err := addAddress("lo:1", arg(args, 0)); err != nil {
			return err
		}
		l, err := net.Listen("tcp", net.JoinHostPort("0.0.0.0", arg(args, 1)))
		if err != nil {
			return err
		}
		defer l.Close()
		return again(nil, args[2:])
	},
}

func connect(args []string) error {
	c, err := net.DialTimeout("tcp", net.JoinHostPort(spelled(arg(args, 0)), arg(args, 1)), netTimeout)
	if err != nil {
		return err
	}
	return c.Close()
}

// tunnel makes an interface whose other end is this program.
func tunnel() error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	req, err := unix.NewIfreq("tun0")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	return os.NewSyscallError("TUNSETIFF", unix.IoctlIfreq(fd, unix.TUNSETIFF, req))
}

// spelled reads an address as inet_aton does: "2852039166", "0xa9.254.0251.254".
func spelled(host string) string {
	parts := strings.Split(host, ".")
	if len(parts) > 4 {
		return host
	}
	var sum uint64
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 0, 32)
		if err != nil {
			return host
		}
		if i < len(parts)-1 {
			sum |= n << (8 * (3 - i))
		} else {
			sum |= n
		}
	}
	return net.IPv4(byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum)).String()
}

// addAddress gives an interface an address and brings it up.
func addAddress(name, address string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ip := net.ParseIP(address).To4()
	if ip == nil {
		return usageError("not an IPv4 address: " + address)
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := req.SetInet4Addr(ip); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, req); err != nil {
		return os.NewSyscallError("SIOCSIFADDR", err)
	}
	req.SetUint16(unix.IFF_UP)
	return os.NewSyscallError("SIOCSIFFLAGS", unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req))
}
