//go:build !linux

package main

import (
	"context"
	"errors"
)

var errLinuxOnly = errors.New("containerd needs Linux; `make run RUNTIME=fake` works here")

func checkMachine() error { return errLinuxOnly }

func startContainerd(context.Context, *node) (backend, error) { return nil, errLinuxOnly }

func takeDown() error { return nil }
