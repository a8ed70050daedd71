// Command vm runs the tests of room cgroup in virtual machines that have nothing
// else in them: Debian's kernel, the test binary, and an init of a few lines or
// systemd. It needs no root and no /dev/kvm. See README.md.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const (
	qemu   = "qemu-system-x86_64"
	marker = "kubeletkit-vm: exit "
)

// machine is one kind of node.
type machine struct {
	name    string
	systemd bool
	must    string // the cgroup version its tests insist on
	args    string // for the kernel
}

var machines = []machine{
	{"v2", false, "v2", "cgroup_no_v1=all"},
	{"systemd", true, "v2", "systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all"},
	{"systemd-v1", true, "v1", "systemd.unified_cgroup_hierarchy=0"},
}

func main() {
	kernel := flag.String("kernel", "", "boot this vmlinuz (default: Debian's cloud kernel, fetched with apt-get into .dev/vm)")
	only := flag.String("machine", "", "boot this one alone: v2, systemd or systemd-v1")
	within := flag.Duration("timeout", 20*time.Minute, "end it all after this time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *within)
	defer cancel()
	if err := run(ctx, *kernel, *only); err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		cancel()
		os.Exit(1)
	}
}

func run(ctx context.Context, kernel, only string) error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return fmt.Errorf("this is %s/%s; the machine is made on linux/amd64", runtime.GOOS, runtime.GOARCH)
	}
	if _, err := exec.LookPath(qemu); err != nil {
		return fmt.Errorf("%w; apt-get install --no-install-recommends qemu-system-x86", err)
	}
	root, err := output(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubeletkit/kubeletkit")
	if err != nil {
		return err
	}
	dir := filepath.Join(root, ".dev", "vm")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if kernel == "" {
		if kernel, err = debianKernel(ctx, dir); err != nil {
			return fmt.Errorf("fetch a kernel: %w; give one with -kernel", err)
		}
	}
	booted := 0
	for _, m := range machines {
		if only != "" && only != m.name {
			continue
		}
		initrd, err := build(ctx, root, dir, m)
		if err == nil {
			err = boot(ctx, m, kernel, initrd)
		}
		if err != nil {
			return fmt.Errorf("machine %s: %w", m.name, err)
		}
		booted++
	}
	if booted == 0 {
		return fmt.Errorf("there is no machine %q", only)
	}
	return nil
}

// output is what a command says, without the white space around it.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// debianKernel unpacks the kernel of Debian's clouds. Nothing gets installed. The
// one in dir is used again.
func debianKernel(ctx context.Context, dir string) (string, error) {
	if found, err := filepath.Glob(filepath.Join(dir, "vmlinuz-*")); err != nil || len(found) > 0 {
		return found[len(found)-1], err
	}
	depends, err := output(ctx, "", "apt-cache", "depends", "--important", "linux-image-cloud-amd64")
	if err != nil {
		return "", err
	}
	_, name, ok := strings.Cut(depends, "Depends: ")
	if !ok {
		return "", errors.New("apt knows no linux-image-cloud-amd64; apt-get update first")
	}
	name, _, _ = strings.Cut(name, "\n")
	fmt.Println("vm: fetching", name)
	debs, done, err := download(ctx, dir, name)
	if err != nil {
		return "", err
	}
	defer done()
	work := filepath.Dir(debs[0])
	if _, err := output(ctx, work, "dpkg-deb", "-x", debs[0], "."); err != nil {
		return "", err
	}
	kernels, err := filepath.Glob(filepath.Join(work, "boot", "vmlinuz-*"))
	if err != nil || len(kernels) != 1 {
		return "", fmt.Errorf("%s has %d kernels, %w", name, len(kernels), err)
	}
	to := filepath.Join(dir, filepath.Base(kernels[0]))
	return to, os.Rename(kernels[0], to)
}

// download fetches packages into a folder of their own, which done removes.
func download(ctx context.Context, dir string, names ...string) (debs []string, done func(), err error) {
	work, err := os.MkdirTemp(dir, "deb")
	if err != nil {
		return nil, nil, err
	}
	done = func() { _ = os.RemoveAll(work) }
	if _, err := output(ctx, work, "apt-get", append([]string{"download", "-qq"}, names...)...); err != nil {
		done()
		return nil, nil, err
	}
	debs, err = filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil || len(debs) != len(names) {
		done()
		return nil, nil, fmt.Errorf("apt-get left %d packages of %d, %v", len(debs), len(names), err)
	}
	return debs, done, nil
}

// build makes the initramfs: the test binary, and who runs it.
func build(ctx context.Context, root, dir string, m machine) (string, error) {
	static := func(in string, args ...string) error {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = in, os.Stdout, os.Stderr
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		return cmd.Run()
	}
	if err := static(root, "test", "-c", "-o", filepath.Join(dir, "cgroup.test"), "./cgroup"); err != nil {
		return "", fmt.Errorf("build the tests of room cgroup: %w", err)
	}
	if err := static(filepath.Join(root, "test"), "build", "-o", filepath.Join(dir, "init"), "./vm/init"); err != nil {
		return "", fmt.Errorf("build init: %w", err)
	}
	runner := "init"
	files := []file{{name: "tmp", mode: directory}}
	if m.systemd {
		more, err := systemdFiles(ctx, dir, m.must)
		if err != nil {
			return "", err
		}
		runner, files = "runner", append(files, more...)
	}
	for from, to := range map[string]string{"init": runner, "cgroup.test": "cgroup.test"} {
		data, err := os.ReadFile(filepath.Join(dir, from))
		if err != nil {
			return "", err
		}
		files = append(files, file{to, executable, data})
	}
	to := filepath.Join(dir, "initramfs.gz")
	f, err := os.Create(to)
	if err != nil {
		return "", err
	}
	return to, errors.Join(initramfs(f, withParents(files)), f.Close())
}

// boot runs the machine until it switches itself off, and passes on how the tests
// in it ended.
func boot(ctx context.Context, m machine, kernel, initrd string) error {
	fmt.Printf("vm: booting machine %s on %s\n", m.name, filepath.Base(kernel))
	cmd := exec.CommandContext(ctx, qemu, "-machine", "pc,accel=tcg", "-cpu", "max", "-smp", "2", "-m", "768",
		"-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-kernel", kernel, "-initrd", initrd,
		// What the kernel does not know goes into the environment of init.
		"-append", "console=ttyS0 quiet panic=-1 hugepages=4 systemd.unit=kubeletkit.service KUBELETKIT_CGROUP_MUST="+m.must+" "+m.args)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	said := ""
	for lines := bufio.NewScanner(io.TeeReader(out, os.Stdout)); lines.Scan(); {
		if code, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), marker); ok {
			said = code
		}
	}
	err = cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the machine did not end in time: %w", ctx.Err())
	case err != nil:
		return fmt.Errorf("%s: %w", qemu, err)
	case said == "":
		return errors.New("the machine ended before its tests did")
	case said != "0":
		return fmt.Errorf("the tests in the machine ended with status %s", said)
	}
	return nil
}
