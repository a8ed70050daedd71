package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Close takes down the pods through CRI where it answers, ends containerd and
// removes whatever is left after that. The error names what could not be
// removed. The folder keeps its images and logs; a later Start reuses them.
func (d *Daemon) Close() error {
	if d.proc != nil && !d.proc.ended() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		// What CRI did not manage is removed the hard way below.
		_ = d.RemovePods(ctx)
		cancel()
	}
	err := d.Stop()
	if d.conn != nil {
		_ = d.conn.Close()
	}
	if d.ledger != nil {
		d.ledger.close()
	}
	err = errors.Join(err, reap(d.at))
	if own, ok := d.log.(io.Closer); ok && d.cfg.Log == nil {
		_ = own.Close()
	}
	return errors.Join(err, d.lock.Close())
}

// RemovePods stops and removes every pod through CRI, without a grace period, and
// the cgroups that their agent would remove if it still ran.
func (d *Daemon) RemovePods(ctx context.Context) error {
	list, err := d.Runtime().ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("remove pods: %w", err)
	}
	var g errgroup.Group
	g.SetLimit(4)
	for _, p := range list.Items {
		g.Go(func() error {
			if _, err := d.Runtime().StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.Id}); err != nil {
				return fmt.Errorf("remove pod %s/%s: %w", p.Metadata.Namespace, p.Metadata.Name, err)
			}
			if _, err := d.Runtime().RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.Id}); err != nil {
				return fmt.Errorf("remove pod %s/%s: %w", p.Metadata.Namespace, p.Metadata.Name, err)
			}
			return nil
		})
	}
	err = g.Wait()
	removePodCgroups(d.at)
	return err
}

// ShimPids returns the shims' processes by sandbox ID: one shim serves a pod.
func (d *Daemon) ShimPids() map[string]int {
	pids := map[string]int{}
	for _, p := range processes(d.at) {
		args := strings.Fields(p.command)
		if i := slices.Index(args, "-id"); p.shim && i >= 0 && i+1 < len(args) {
			pids[args[i+1]] = p.pid
		}
	}
	return pids
}

// Orphans returns the shims, by sandbox ID, whose sandbox CRI does not know
// any more. containerd 2.4 leaves one behind when its client goes away in the
// middle of a StartContainer; no agent can see or end it through CRI.
func (d *Daemon) Orphans(ctx context.Context) (map[string]int, error) {
	orphans := d.ShimPids()
	list, err := d.Runtime().ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("look for orphaned shims: %w", err)
	}
	for _, p := range list.Items {
		delete(orphans, p.Id)
	}
	return orphans, nil
}

// Reap removes what an earlier run left in a folder, running pods included,
// and is a no-op where nothing is left. [Start] does it by itself. It refuses
// while a daemon of a living process is there.
func Reap(dir string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("reap %s: %w", dir, err)
	}
	if _, err := os.Stat(abs); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	lock, err := lockDir(layoutOf(abs).lock)
	if err != nil {
		return fmt.Errorf("reap %s: %w", dir, err)
	}
	return errors.Join(reap(layoutOf(abs)), lock.Close())
}

// reap is to the folder what pulling the plug is to a machine: everything that
// runs ends, state is empty, root stays. Each step is tried again until
// nothing is left, because the kernel takes network namespaces and cgroups
// down in its own time.
func reap(at layout) error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	sockets, ids := shimSockets(at), knownIDs(at)
	var left []string
	err := poll(ctx, func() error {
		sweep(at)
		if left = Leftovers(at.dir); len(left) > 0 {
			return errors.New("left over")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("clean up after the containerd in %s: still there:\n  %s", at.dir, strings.Join(left, "\n  "))
	}
	for _, s := range sockets {
		_ = os.Remove(s)
	}
	removeResults(ids)
	removeParent(at)
	// No mount is below it any more, so no host folder of a pod is at risk.
	for _, path := range []string{at.state, at.cniData, at.ids, at.parentOurs, at.pidFile, at.socket, at.socket + ".ttrpc"} {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("clean up after the containerd in %s: %w", at.dir, err)
		}
	}
	return nil
}

// sweep tries once to remove everything; what it could not is in Leftovers.
// containerd and its shims go first, so that nothing is started again.
func sweep(at layout) {
	found := processes(at)
	for _, first := range []bool{true, false} {
		for _, p := range found {
			if p.shim == first {
				_ = syscall.Kill(p.pid, syscall.SIGKILL)
			}
		}
	}
	mounts := Mounts(at.dir)
	slices.Reverse(mounts)
	for _, m := range mounts {
		_ = syscall.Unmount(m, syscall.MNT_DETACH)
	}
	for _, n := range netnsFiles(at) {
		_ = os.Remove(n)
	}
	below := cgroups(knownIDs(at))
	slices.Reverse(below)
	for _, c := range below {
		_ = os.Remove(c)
	}
	removeCgroupRoot(at)
	names := links(at.network)
	slices.Reverse(names) // the bridge last
	for _, l := range names {
		_ = exec.Command("ip", "link", "del", l).Run()
	}
	removeRules(iptablesRules(at.network))
}

// removeResults deletes what libcni remembers about pods whose network was
// never taken down; it has one folder for all networks of a machine.
func removeResults(ids map[string]bool) {
	const dir = "/var/lib/cni/results"
	entries, _ := os.ReadDir(dir)
	for _, e := range entries { // NETWORK-ID-LINK
		parts := strings.Split(e.Name(), "-")
		if len(parts) > 2 && ids[parts[len(parts)-2]] {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// parents are the cgroups that pods without a cgroup parent of their own get.
// The kernel keeps one that is not empty.
func parents() []string {
	found, _ := filepath.Glob("/sys/fs/cgroup/*/" + namespace)
	if unified := "/sys/fs/cgroup/" + namespace; exists(unified) {
		found = append(found, unified)
	}
	return found
}

// removeParent removes the parents where [Start] noted that none were there.
func removeParent(at layout) {
	if exists(at.parentOurs) {
		for _, p := range parents() {
			_ = os.Remove(p)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// removeRules deletes the rules, then the chains that CNI made one per pod.
func removeRules(rules []rule) {
	chains := map[rule]bool{}
	for _, r := range rules {
		script := fmt.Sprintf("*%s\n-D%s\nCOMMIT\n", r.table, strings.TrimPrefix(r.text, "-A"))
		cmd := exec.Command("iptables-restore", "--wait", "--noflush")
		cmd.Stdin = strings.NewReader(script)
		_ = cmd.Run()
		if chain := strings.Fields(r.text)[1]; strings.HasPrefix(chain, "CNI-") && !strings.HasPrefix(chain, "CNI-HOSTPORT-") {
			chains[rule{r.table, chain}] = true
		}
		if i := strings.Index(r.text, "-j CNI-"); i >= 0 {
			chain := strings.Fields(r.text[i:])[1]
			chains[rule{r.table, chain}] = true
		}
	}
	for c := range chains {
		_ = exec.Command("iptables", "-w", "-t", c.table, "-F", c.text).Run()
		_ = exec.Command("iptables", "-w", "-t", c.table, "-X", c.text).Run()
	}
}

// shimSockets are the sockets of the running shims. They lie in a folder that
// all containerds of a machine share, and a killed shim does not remove its.
func shimSockets(at layout) []string {
	var sockets []string
	bundles, _ := os.ReadDir(at.bundles)
	for _, b := range bundles {
		bundle := filepath.Join(at.bundles, b.Name())
		var boot struct {
			Address string `json:"address"`
		}
		if data, err := os.ReadFile(filepath.Join(bundle, "bootstrap.json")); err == nil { // 2.x
			_ = json.Unmarshal(data, &boot)
		} else if data, err := os.ReadFile(filepath.Join(bundle, "address")); err == nil { // 1.x
			boot.Address = strings.TrimSpace(string(data))
		}
		path := strings.TrimPrefix(boot.Address, "unix://")
		if filepath.IsAbs(path) && strings.HasPrefix(path, "/run/containerd/s/") {
			sockets = append(sockets, path)
		}
	}
	return sockets
}
