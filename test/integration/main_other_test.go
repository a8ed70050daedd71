//go:build !linux

package integration_test

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(*testing.M) {
	fmt.Println("integration tests NOT RUN: containerd needs Linux")
	if os.Getenv("CI") == "true" {
		os.Exit(1)
	}
}
