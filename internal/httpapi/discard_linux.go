package httpapi

import (
	"fmt"
	"io"
	"net"
	"syscall"
)

// patience is for how many bytes, if as many are to come, a discarding reader
// is woken: every waking costs as much as some 20 kB of receiving.
const patience = 128 << 10

// discard receives up to len(p) bytes and drops them in the kernel (tcp(7),
// MSG_TRUNC), which saves the copy, most of what reading costs.
func discard(c *net.TCPConn, p []byte) (n int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	low := 1
	await := func(fd uintptr, bytes int) {
		if bytes != low && syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, bytes) == nil {
			low = bytes
		}
	}
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, _, failed = syscall.Recvfrom(int(fd), p, syscall.MSG_TRUNC|syscall.MSG_DONTWAIT)
			switch failed {
			case syscall.EINTR:
			case syscall.EAGAIN:
				await(fd, min(len(p), patience))
				return false
			default:
				return true
			}
		}
	})
	_ = raw.Control(func(fd uintptr) { await(fd, 1) })
	if err != nil {
		return 0, err
	}
	switch {
	case failed != nil:
		return 0, fmt.Errorf("receive: %w", failed)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
