package main

import "syscall"

// childAttr keeps a Ctrl-C at the terminal from the child, which is ended in
// its turn, and ends the child should devnode be killed.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
