//go:build unix

package podsync

import "syscall"

// nonBlock keeps the open of a pipe from waiting for a writer.
const nonBlock = syscall.O_NONBLOCK
