package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// mountMemory mounts a tmpfs on a directory that it makes, then runs the step that
// follows. The container has to be privileged.
func mountMemory(args []string) int {
	if len(args) < 1 {
		return complain(errors.New("mount: needs a directory"))
	}
	err := os.MkdirAll(args[0], 0o755)
	if err == nil {
		err = syscall.Mount("kk", args[0], "tmpfs", 0, "size=64k")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kk: mount:", err)
		return 1
	}
	if rest := args[1:]; len(rest) > 0 {
		return run(rest)
	}
	return 0
}
