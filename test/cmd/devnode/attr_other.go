//go:build !linux

package main

import "syscall"

// childAttr keeps a Ctrl-C at the terminal from the child, which is ended in
// its turn.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
