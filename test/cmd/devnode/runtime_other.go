//go:build !linux

package main

import (
	"context"
	"errors"
)

func startContainerd(context.Context, *node) (backend, error) {
	return nil, errors.New("containerd needs Linux; `make run RUNTIME=fake` works here")
}

func takeDown() error { return nil }
