package cgroup_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/kubeletkit/kubeletkit/cgroup"
)

// The test binary is also what runs in the cgroups of its tests.
const (
	actAs  = "KUBELETKIT_CGROUP_ACT_AS"
	joinIn = "KUBELETKIT_CGROUP_JOIN"
	// must makes it a failure that a test finds no cgroups to work in.
	must = "KUBELETKIT_CGROUP_MUST"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(actAs); role != "" {
		if err := act(role); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// act joins the cgroups, says so, and waits or eats memory.
func act(role string) error {
	for dir := range strings.SplitSeq(os.Getenv(joinIn), "\n") {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
			return err
		}
	}
	fmt.Println("joined")
	mib, eats := strings.CutPrefix(role, "eat ")
	if !eats {
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	}
	n, err := strconv.Atoi(mib)
	if err != nil {
		return err
	}
	food := make([]byte, n<<20)
	for i := 0; i < len(food); i += 4096 {
		food[i] = 1
	}
	fmt.Println("sated", len(food))
	return nil
}

// process is this binary in a cgroup.
type process struct {
	*exec.Cmd
	out *bufio.Reader
}

// start runs a process in the directories and returns once it has joined them.
func start(t *testing.T, role string, dirs map[string]string) process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var join []string
	for controller, dir := range dirs {
		if controller == "cpuset" {
			continue // takes nobody before it was told which processors it has
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		join = append(join, dir)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), actAs+"="+role, joinIn+"="+strings.Join(join, "\n"))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	p := process{cmd, bufio.NewReader(out)}
	if line, _ := p.out.ReadString('\n'); line != "joined\n" {
		t.Fatalf("the process says %q, want that it has joined %v", line, join)
	}
	return p
}

// below adds a name to each directory.
func below(dirs map[string]string, name string) map[string]string {
	all := map[string]string{}
	for controller, dir := range dirs {
		all[controller] = filepath.Join(dir, name)
	}
	return all
}

// onEachDriver runs a test with each driver that works here, in a cgroup of its
// own that is removed afterwards.
func onEachDriver(t *testing.T, cfg cgroup.Config, test func(t *testing.T, tree *cgroup.Tree)) {
	t.Helper()
	drivers := []cgroup.Driver{cgroup.Cgroupfs}
	if cgroup.HasSystemd() {
		drivers = append(drivers, cgroup.Systemd)
	}
	for _, driver := range drivers {
		t.Run(string(driver), func(t *testing.T) {
			cfg := cfg
			cfg.Driver, cfg.PerQOS = driver, true
			cfg.Root = fmt.Sprintf("/kubeletkit-test-%d", os.Getpid())
			tree, err := cgroup.New(cfg)
			if err == nil && os.Geteuid() != 0 {
				err = os.ErrPermission
			}
			if err == nil {
				t.Cleanup(func() {
					if err := tree.ScrapTop(); err != nil {
						t.Errorf("clean up %s: %v", tree.Top(), err)
					}
				})
				err = tree.MakeTop()
			}
			if err == nil {
				err = tree.Start(t.Context())
			}
			if err != nil && os.Getenv(must) == "" && notOurs(err) {
				t.Logf("NOT RUN: no cgroups to work in: %v", err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			test(t, tree)
		})
	}
}

// notOurs reports an error that is the machine's: nobody's cgroups, those of a
// container that may only look at them, or that got no controllers.
func notOurs(err error) bool {
	return errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS) || strings.Contains(err.Error(), "the controllers ")
}
