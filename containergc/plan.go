package containergc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubeletkit/kubeletkit/observed"
)

// Policy says how many dead containers are kept, and how long. The zero value
// stands for [DefaultPolicy].
type Policy struct {
	// MinAge spares containers that were created less than this ago.
	MinAge time.Duration
	// MaxPerPodContainer is how many dead instances are kept per pod and
	// container name, negative for any number. One is what kubectl logs
	// --previous needs.
	MaxPerPodContainer int
	// MaxContainers is how many dead instances are kept on the node, negative
	// for any number.
	MaxContainers int
}

// DefaultPolicy keeps one dead instance per container name, however old.
func DefaultPolicy() Policy { return Policy{MaxPerPodContainer: 1, MaxContainers: -1} }

func (p Policy) orDefault() Policy {
	if p == (Policy{}) {
		return DefaultPolicy()
	}
	return p
}

// Input is all that a plan is made from.
type Input struct {
	Now time.Time
	// Pods is everything the runtime has.
	Pods   []observed.Pod
	Policy Policy
	// Removable reports whether all content of a pod may go: it is unknown to
	// workers that have synced, was evicted, or is deleted and stopped. Nil: no.
	Removable func(observed.UID) bool
	// AllSourcesReady is false while some source of pods has not been heard.
	// Until then Removable is not asked.
	AllSourcesReady bool
}

// Removal is what has to go, oldest first.
type Removal struct {
	Containers []Container
	Sandboxes  []Sandbox
}

// Container is a container and the pod it belonged to.
type Container struct {
	Pod string // namespace/name
	UID observed.UID
	observed.Container
}

// Sandbox is a sandbox and the pod it belonged to.
type Sandbox struct {
	Pod string // namespace/name
	UID observed.UID
	observed.Sandbox
}

// String has one line per thing to remove.
func (r Removal) String() string {
	var b strings.Builder
	for _, c := range r.Containers {
		fmt.Fprintf(&b, "container %s of pod %s: %s, %s\n", c.Name, c.Pod, c.State, c.ID)
	}
	for _, s := range r.Sandboxes {
		fmt.Fprintf(&b, "sandbox of pod %s: attempt %d, %s\n", s.Pod, s.Attempt, s.ID)
	}
	return b.String()
}

// Plan chooses what to remove. It takes for granted that each removal succeeds.
func Plan(in Input) Removal {
	in.Policy = in.Policy.orDefault()
	var going []dead
	var groups [][]dead // to keep or not, newest first
	for i := range in.Pods {
		pod := &in.Pods[i]
		if in.removable(pod.UID) {
			going = append(going, in.deadOf(pod)...)
			continue
		}
		groups = append(groups, groupsOf(in.deadOf(pod))...)
	}
	going = append(going, surplus(groups, in.Policy)...)
	slices.SortFunc(going, func(a, b dead) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	var r Removal
	goes := make(map[observed.ContainerID]bool, len(going))
	for _, d := range going {
		goes[d.ID] = true
		r.Containers = append(r.Containers, d.value())
	}
	r.Sandboxes = deadSandboxes(&in, goes)
	slices.SortFunc(r.Sandboxes, func(a, b Sandbox) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return r
}

// dead is a container that does not run. Pointers, because there may be tens of
// thousands to be sorted.
type dead struct {
	pod *observed.Pod
	*observed.Container
}

func (d dead) value() Container {
	return Container{Pod: podName(d.pod), UID: d.pod.UID, Container: *d.Container}
}

func podName(pod *observed.Pod) string { return pod.Namespace + "/" + pod.Name }

func (in *Input) removable(uid observed.UID) bool {
	return in.AllSourcesReady && in.Removable != nil && in.Removable(uid)
}

// deadOf returns the pod's dead containers that are old enough. Without a MinAge
// no clock is asked: it may have been set back.
func (in *Input) deadOf(pod *observed.Pod) []dead {
	cutoff := in.Now.Add(-in.Policy.MinAge)
	var list []dead
	for i := range pod.Containers {
		c := &pod.Containers[i]
		if c.State != observed.Running && (in.Policy.MinAge == 0 || !c.CreatedAt.After(cutoff)) {
			list = append(list, dead{pod, c})
		}
	}
	return list
}

// groupsOf groups the dead containers of a pod that stays by name.
func groupsOf(list []dead) [][]dead {
	var groups [][]dead
	at := make(map[string]int, 4)
	for _, d := range list {
		i, ok := at[d.Name]
		if !ok {
			i = len(groups)
			at[d.Name] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], d)
	}
	for i, group := range groups {
		newest, _ := group[0].pod.Container(group[0].Name)
		if group[0].State == observed.Created && group[0].ID == newest.ID {
			groups[i] = group[1:]
		}
	}
	return groups
}

// surplus takes from the groups what is above the limits of the policy.
func surplus(groups [][]dead, policy Policy) []dead {
	var gone []dead
	limit := func(n int) {
		for i, group := range groups {
			if len(group) > n {
				gone = append(gone, group[n:]...)
				groups[i] = group[:n]
			}
		}
	}
	if policy.MaxPerPodContainer >= 0 {
		limit(policy.MaxPerPodContainer)
	}
	groups = slices.DeleteFunc(groups, func(g []dead) bool { return len(g) == 0 })
	total := 0
	for _, group := range groups {
		total += len(group)
	}
	if policy.MaxContainers < 0 || total <= policy.MaxContainers {
		return gone
	}
	// First every name gets the same share, so that a crash loop does not push
	// out the only instance of another container.
	limit(max(1, policy.MaxContainers/len(groups)))
	rest := slices.Concat(groups...)
	if len(rest) <= policy.MaxContainers {
		return gone
	}
	slices.SortStableFunc(rest, func(a, b dead) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return append(gone, rest[policy.MaxContainers:]...)
}

// deadSandboxes returns sandboxes that are not ready and that no container is
// left in. The newest one of a pod that stays is kept: its attempt number is what
// the next one counts from.
func deadSandboxes(in *Input, goes map[observed.ContainerID]bool) []Sandbox {
	var list []Sandbox
	for i := range in.Pods {
		pod := &in.Pods[i]
		first := 1
		if in.removable(pod.UID) {
			first = 0
		}
		for j := first; j < len(pod.Sandboxes); j++ {
			s := pod.Sandboxes[j]
			if !s.Ready && !slices.ContainsFunc(pod.Containers, func(c observed.Container) bool {
				return c.Sandbox == s.ID && !goes[c.ID]
			}) {
				list = append(list, Sandbox{Pod: podName(pod), UID: pod.UID, Sandbox: s})
			}
		}
	}
	return list
}

// Extra returns the exited containers of one pod that need not wait for the next
// pass: those beyond the newest of their name, or every one if all is set.
func Extra(pod observed.Pod, policy Policy, all bool) []Container {
	keep := policy.orDefault().MaxPerPodContainer
	if keep < 0 && !all {
		return nil
	}
	keep = max(keep, 1)
	var list []Container
	kept := map[string]int{}
	for _, c := range pod.Containers {
		if c.State != observed.Exited {
			continue
		}
		if kept[c.Name]++; all || kept[c.Name] > keep {
			list = append(list, Container{Pod: podName(&pod), UID: pod.UID, Container: c})
		}
	}
	return list
}
