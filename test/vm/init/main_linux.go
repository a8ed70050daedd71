// Command init is the first process of the virtual machine: it mounts what a test
// of cgroups needs, runs the test binary, says how it ended, and switches the
// machine off. Under systemd it is a service, and finds everything mounted.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

func main() {
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "init:", err)
		code = 1
	}
	fmt.Printf("\nkubeletkit-vm: exit %d\n", code)
	// Wait until the console has sent it, then let qemu's -no-reboot end it all.
	_ = unix.IoctlSetInt(int(os.Stdout.Fd()), unix.TCSBRK, 1)
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}

func run() (code int, err error) {
	if os.Getpid() == 1 {
		if err := mount(); err != nil {
			return 0, err
		}
	}
	console, err := os.OpenFile("/dev/console", os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	os.Stdout, os.Stderr = console, console
	test := exec.Command("/cgroup.test", "-test.v", "-test.timeout=5m")
	test.Stdout, test.Stderr = console, console
	err = test.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

func mount() error {
	for _, m := range []struct{ kind, dir string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}, {"cgroup2", "/sys/fs/cgroup"},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.kind, m.dir, err)
		}
	}
	return nil
}
