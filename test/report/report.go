package report

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Report is the inside view of one process.
type Report struct {
	Args     []string          `json:"args"`
	Env      map[string]string `json:"env"`
	Dir      string            `json:"dir"`
	UID      int               `json:"uid"`
	GID      int               `json:"gid"`
	Groups   []int             `json:"groups"`
	Hostname string            `json:"hostname"`
	// Status has the lines of /proc/self/status by their names: CapEff, Seccomp,
	// NoNewPrivs, ...
	Status      map[string]string `json:"status"`
	OOMScoreAdj int               `json:"oomScoreAdj"`
	// Cgroups are the paths of /proc/self/cgroup by controller, "" for v2.
	Cgroups    map[string]string `json:"cgroups"`
	Namespaces map[string]string `json:"namespaces"`
	UIDMap     string            `json:"uidMap"`
	// Processes are the process IDs that /proc shows, in order.
	Processes []int           `json:"processes"`
	Mounts    []Mount         `json:"mounts"`
	Files     map[string]File `json:"files"`
	// Terminal says that standard input is one; Stdin that there is any.
	Terminal bool `json:"terminal"`
}

// Mount is a line of mountinfo (see proc(5)).
type Mount struct {
	Point    string   `json:"point"`
	Root     string   `json:"root"`
	Type     string   `json:"type"`
	Options  []string `json:"options"`
	Super    []string `json:"super"`
	Optional []string `json:"optional"` // shared:N, master:N
}

// File describes what a path leads to. Mode, owner and size are of the end of
// all links.
type File struct {
	Error   string   `json:"error,omitempty"`
	Mode    string   `json:"mode,omitempty"` // as ls writes it, four octal digits after
	UID     int      `json:"uid"`
	GID     int      `json:"gid"`
	Size    int64    `json:"size"`
	Link    string   `json:"link,omitempty"` // what the path itself points to
	Content string   `json:"content,omitempty"`
	List    []string `json:"list,omitempty"`
	// Writable says that a file could be made there, or opened for writing.
	Writable bool `json:"writable"`
}

// Has reports whether the mount has the option.
func (m Mount) Has(option string) bool {
	return slices.Contains(m.Options, option) || slices.Contains(m.Super, option)
}

// Mount returns the last mount at the point, which is the one that counts.
func (r Report) Mount(point string) (Mount, bool) {
	for _, m := range slices.Backward(r.Mounts) {
		if m.Point == point {
			return m, true
		}
	}
	return Mount{}, false
}

const mostContent = 8 << 10

// Make looks around. What cannot be read is left empty.
func Make(paths []string) Report {
	r := Report{Args: os.Args, UID: os.Getuid(), GID: os.Getgid(), Env: map[string]string{}, Files: map[string]File{}}
	for _, e := range os.Environ() {
		name, value, _ := strings.Cut(e, "=")
		r.Env[name] = value
	}
	r.Dir, _ = os.Getwd()
	r.Groups, _ = os.Getgroups()
	slices.Sort(r.Groups)
	r.Hostname, _ = os.Hostname()
	r.Status = pairs(read("/proc/self/status"), ":")
	r.OOMScoreAdj, _ = strconv.Atoi(read("/proc/self/oom_score_adj"))
	r.Cgroups = map[string]string{}
	for line := range strings.Lines(read("/proc/self/cgroup")) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 {
			for c := range strings.SplitSeq(f[1], ",") {
				r.Cgroups[c] = f[2]
			}
		}
	}
	r.Namespaces = map[string]string{}
	for _, ns := range []string{"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"} {
		r.Namespaces[ns], _ = os.Readlink("/proc/self/ns/" + ns)
	}
	r.UIDMap = strings.Join(strings.Fields(read("/proc/self/uid_map")), " ")
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		n, _ := strconv.Atoi(filepath.Base(p))
		r.Processes = append(r.Processes, n)
	}
	slices.Sort(r.Processes)
	r.Mounts = mounts(read("/proc/self/mountinfo"))
	for _, p := range paths {
		r.Files[p] = describe(p)
	}
	if fi, err := os.Stdin.Stat(); err == nil {
		r.Terminal = fi.Mode()&os.ModeCharDevice != 0 && isTerminal()
	}
	return r
}

func read(file string) string {
	data, _ := os.ReadFile(file)
	return strings.TrimSpace(string(data))
}

func pairs(text, sep string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, sep)
		all[name] = strings.TrimSpace(value)
	}
	return all
}

func mounts(text string) []Mount {
	var all []Mount
	lines := bufio.NewScanner(bytes.NewReader([]byte(text)))
	for lines.Scan() {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		b, a := strings.Fields(before), strings.Fields(after)
		if len(b) < 6 || len(a) < 3 {
			continue
		}
		all = append(all, Mount{
			Root: b[3], Point: b[4], Options: strings.Split(b[5], ","), Optional: b[6:],
			Type: a[0], Super: strings.Split(a[2], ","),
		})
	}
	return all
}
