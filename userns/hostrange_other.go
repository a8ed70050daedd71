//go:build !linux

package userns

import (
	"context"
	"errors"
)

// HostRange is for Linux: nowhere else are there user namespaces.
func HostRange(context.Context) (first, length uint32, err error) {
	return 0, 0, errors.ErrUnsupported
}
