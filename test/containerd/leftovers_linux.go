package containerd

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Leftovers lists what the daemon of a folder and its pods left on the
// machine, one line for a person each: processes, mounts, network namespaces,
// cgroups, links, iptables rules. Empty means clean. While a daemon runs there
// the list is not empty. Files below the folder itself do not count.
func Leftovers(dir string) []string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return []string{err.Error()}
	}
	at := layoutOf(abs)
	all := leftovers(at, func(string) bool { return true })
	for _, c := range cgroupTree(at) {
		all = append(all, "cgroup "+c)
	}
	return all
}

// Left is [Leftovers] of the pods alone: empty while the daemon has no pods.
func (d *Daemon) Left() []string {
	own := []string{"link " + d.at.network, fmt.Sprintf("process %d:", d.Pid())}
	all := leftovers(d.at, func(line string) bool {
		return !slices.ContainsFunc(own, func(o string) bool { return line == o || strings.HasPrefix(line, o+" ") })
	})
	for _, c := range podCgroups(d.at) {
		all = append(all, "cgroup "+c)
	}
	return all
}

func leftovers(at layout, counts func(line string) bool) []string {
	var all []string
	add := func(format string, args ...any) {
		if line := fmt.Sprintf(format, args...); counts(line) {
			all = append(all, line)
		}
	}
	for _, p := range processes(at) {
		add("process %d: %s", p.pid, p.command)
	}
	for _, m := range Mounts(at.dir) {
		add("mount %s", m)
	}
	for _, n := range netnsFiles(at) {
		add("network namespace %s", n)
	}
	for _, c := range cgroups(knownIDs(at)) {
		add("cgroup %s", c)
	}
	for _, l := range links(at.network) {
		add("link %s", l)
	}
	for _, r := range iptablesRules(at.network) {
		add("iptables %s: %s", r.table, r.text)
	}
	return all
}

type foundProcess struct {
	pid     int
	command string
	shim    bool
}

// processes finds containerd, its shims and what runs in its containers: they
// have the folder in their command line, or a root file system below it.
func processes(at layout) []foundProcess {
	ours, _ := os.Readlink("/proc/self/ns/mnt")
	entries, _ := os.ReadDir("/proc")
	var found []foundProcess
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		proc := filepath.Join("/proc", e.Name())
		raw, err := os.ReadFile(filepath.Join(proc, "cmdline"))
		if err != nil || len(raw) == 0 { // gone, or a kernel thread or zombie
			continue
		}
		args := strings.Split(strings.TrimRight(string(raw), "\x00"), "\x00")
		p := foundProcess{pid: pid, command: strings.Join(args, " ")}
		p.shim = slices.Contains(args, at.socket)
		inContainer := func() bool {
			ns, err := os.Readlink(filepath.Join(proc, "ns", "mnt"))
			if err != nil || ns == ours {
				return false
			}
			mounts, err := os.ReadFile(filepath.Join(proc, "mountinfo"))
			return err == nil && bytes.Contains(mounts, []byte(at.root+"/"))
		}
		if p.shim || slices.Contains(args, at.config) || inContainer() {
			found = append(found, p)
		}
	}
	return found
}

// Mounts lists the mount points below a folder, the deepest last. The folder is
// an absolute path.
func Mounts(dir string) []string {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var found []string
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if point := unescape.Replace(fields[4]); strings.HasPrefix(point, dir+"/") {
			found = append(found, point)
		}
	}
	return found
}

func netnsFiles(at layout) []string {
	entries, _ := os.ReadDir(at.netns)
	var found []string
	for _, e := range entries {
		found = append(found, filepath.Join(at.netns, e.Name()))
	}
	return found
}

// cgroups finds the cgroups of containers, in every hierarchy, the deepest
// last. A driver may put words around the ID (cri-containerd-ID.scope).
func cgroups(ids map[string]bool) []string {
	var found []string
	if len(ids) == 0 {
		return nil
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return nil // cgroups come and go while we look
		}
		id := strings.TrimSuffix(e.Name(), ".scope")
		id = id[strings.LastIndexAny(id, "-:")+1:]
		if ids[id] {
			found = append(found, path)
		}
		return nil
	})
	return found
}

// links lists the bridge and what is plugged into it.
func links(bridge string) []string {
	sys := filepath.Join("/sys/class/net", bridge)
	if _, err := os.Stat(sys); err != nil {
		return nil
	}
	found := []string{bridge}
	ports, _ := os.ReadDir(filepath.Join(sys, "brif"))
	for _, p := range ports {
		found = append(found, p.Name())
	}
	return found
}

type rule struct {
	table string
	text  string // as iptables-save prints it: "-A CHAIN ..."
}

// iptablesRules finds the rules that CNI plugins made for a network: they
// carry its name in a comment. The chains CNI-HOSTPORT-* that the portmap
// plugin shares among all networks of a machine are not ours.
func iptablesRules(network string) []rule {
	out, err := exec.Command("iptables-save").Output()
	if err != nil {
		return nil // no iptables, no rules
	}
	var found []rule
	table := ""
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "*"); ok {
			table = name
		}
		if strings.HasPrefix(line, "-A ") && strings.Contains(line, network) {
			found = append(found, rule{table, line})
		}
	}
	return found
}
