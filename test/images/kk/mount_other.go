//go:build !linux

package main

import "errors"

// mountMemory is for the inside of a container, and those have Linux.
func mountMemory([]string) int { return complain(errors.New("mount: needs Linux")) }
