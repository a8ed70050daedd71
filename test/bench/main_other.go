//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench: it needs containerd, which needs Linux")
	os.Exit(1)
}
