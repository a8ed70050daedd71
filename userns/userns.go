package userns

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/observed"
)

var (
	// ErrExhausted is wrapped by the error for a pod for which no IDs are left.
	ErrExhausted = errors.New("userns: all user IDs for pods are taken")
	// ErrRecord is wrapped by the error for a pod whose file can't be used.
	ErrRecord = errors.New("userns: bad record")
)

// unit is what a pod gets at least: an ordinary system's users, with nobody.
const unit = 1 << 16

const defaultMaxPods = 110

// Config has a useful zero value except for RootDir.
type Config struct {
	RootDir string // required, absolute: the kubelet's root, for example /var/lib/kubelet
	// First and Length are the host's IDs for pods. First is at least IDsPerPod,
	// so that the host's own users are not among them, and both are multiples of
	// it. Default: all IDs from IDsPerPod on. See [HostRange].
	First, Length uint32
	IDsPerPod     uint32      // a multiple of 65536; default 65536
	MaxPods       int         // the range has to hold as many; default 110
	Log           logr.Logger // default discards
}

// Mapping shows the IDs from ContainerID on, Length of them, as those from HostID
// on. It holds for users and groups alike.
type Mapping struct{ HostID, ContainerID, Length uint32 }

// Allocator knows which IDs which pod has. Its methods may be called at any time,
// from any goroutine; those for one pod are expected one after the other.
type Allocator struct {
	pods   string // <root>/pods
	first  uint32
	per    uint32
	length uint32
	log    logr.Logger

	mu struct {
		sync.Mutex // held over the disk writes, too
		taken      bitmap
		slots      map[observed.UID]int
		// bad are pods with a file that can't be used, as Recover found them.
		bad map[observed.UID]error
	}
}

// New checks cfg. It reads nothing: see [Allocator.Recover].
func New(cfg Config) (*Allocator, error) {
	if !filepath.IsAbs(cfg.RootDir) {
		return nil, fmt.Errorf("userns: Config.RootDir is %q, want an absolute path", cfg.RootDir)
	}
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	if cfg.IDsPerPod == 0 {
		cfg.IDsPerPod = unit
	}
	if cfg.MaxPods == 0 {
		cfg.MaxPods = defaultMaxPods
	}
	if cfg.First == 0 {
		cfg.First = cfg.IDsPerPod
	}
	if cfg.Length == 0 {
		cfg.Length = -cfg.First // 2^32 - First
	}
	slots, err := cfg.slots()
	if err != nil {
		return nil, err
	}
	a := &Allocator{
		pods: filepath.Join(cfg.RootDir, "pods"), log: cfg.Log,
		first: cfg.First, per: cfg.IDsPerPod, length: cfg.Length,
	}
	a.mu.taken, a.mu.slots, a.mu.bad = newBitmap(slots), map[observed.UID]int{}, map[observed.UID]error{}
	return a, nil
}

// slots is how many pods the range holds.
func (c Config) slots() (int, error) {
	end := uint64(c.First) + uint64(c.Length)
	// The last ID of all means "no user" to the kernel, which refuses to map it.
	n := (min(end, math.MaxUint32) - uint64(c.First)) / uint64(c.IDsPerPod)
	switch {
	case c.IDsPerPod%unit != 0:
		return 0, fmt.Errorf("userns: %d IDs per pod are not a multiple of %d", c.IDsPerPod, unit)
	case c.First%c.IDsPerPod != 0:
		return 0, fmt.Errorf("userns: the first ID for pods, %d, is not a multiple of the %d that each gets", c.First, c.IDsPerPod)
	case c.Length%c.IDsPerPod != 0:
		return 0, fmt.Errorf("userns: the %d IDs for pods are not a multiple of the %d that each gets", c.Length, c.IDsPerPod)
	case end > 1<<32:
		return 0, fmt.Errorf("userns: %d IDs from %d on are more than there are", c.Length, c.First)
	case n < uint64(max(c.MaxPods, 0)):
		return 0, fmt.Errorf("userns: %d IDs from %d on are enough for %d pods with %d each, and the node takes %d; lower maxPods or idsPerPod, or give user kubelet a larger range in /etc/subuid and /etc/subgid",
			c.Length, c.First, n, c.IDsPerPod, c.MaxPods)
	}
	return int(n), nil
}

// Map returns the pod's mapping. A pod that has none yet gets the lowest free one,
// and its directory if there is none. A file that an earlier agent left counts; one
// that can't be used is an error, for a container may be running with what it said:
// the pod's own, and one of Recover is an error for every pod that has no IDs yet.
func (a *Allocator) Map(uid observed.UID) (Mapping, error) {
	if err := checkUID(uid); err != nil {
		return Mapping{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if slot, ok := a.mu.slots[uid]; ok {
		return a.mapping(slot), nil
	}
	found, err := a.recover(uid)
	if err != nil {
		return Mapping{}, err
	}
	if found {
		return a.mapping(a.mu.slots[uid]), nil
	}
	if err := a.stillBad(); err != nil {
		return Mapping{}, fmt.Errorf("map users of pod %s: they may be those of another: %w", uid, err)
	}
	slot, ok := a.mu.taken.firstFree()
	if !ok {
		return Mapping{}, fmt.Errorf("map users of pod %s: %w", uid, ErrExhausted)
	}
	m := a.mapping(slot)
	if err := write(a.file(uid), m); err != nil {
		return Mapping{}, fmt.Errorf("map users of pod %s: %w", uid, err)
	}
	a.take(uid, slot)
	a.log.V(1).Info("users of pod mapped", "podUID", uid, "hostID", m.HostID, "length", m.Length)
	return m, nil
}

// Release makes the pod's IDs free for others. No process may run under them any
// more. A pod without a mapping is fine.
func (a *Allocator) Release(uid observed.UID) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	// The file goes first, for good: if it came back after a power cut, two pods
	// would have the same IDs.
	if err := remove(a.file(uid)); err != nil {
		return fmt.Errorf("release users of pod %s: %w", uid, err)
	}
	delete(a.mu.bad, uid)
	if slot, ok := a.mu.slots[uid]; ok {
		a.mu.taken.clear(slot)
		delete(a.mu.slots, uid)
	}
	return nil
}

// Recover takes over the mappings that are on disk, so that no new pod gets the IDs
// of one that still runs. It is for the start. The error joins one per pod whose
// file can't be used. An agent may go on in spite of it: pods that have IDs keep
// them, and no other pod gets any before that file is gone or right.
func (a *Allocator) Recover() error {
	entries, err := os.ReadDir(a.pods)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("recover user namespaces of pods: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if _, err := a.recover(observed.UID(e.Name())); err != nil {
			a.mu.bad[observed.UID(e.Name())] = err
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// stillBad looks again at the files that could not be used. The lock is held.
func (a *Allocator) stillBad() error {
	for uid := range a.mu.bad {
		if _, err := a.recover(uid); err != nil {
			return err
		}
		delete(a.mu.bad, uid)
	}
	return nil
}

// recover takes one pod's mapping from its file, if there is one. The lock is held.
func (a *Allocator) recover(uid observed.UID) (found bool, err error) {
	m, err := read(a.file(uid))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	var slot int
	if err == nil {
		slot, err = a.slot(m)
	}
	if err == nil {
		if old, ok := a.mu.slots[uid]; ok && old == slot {
			return true, nil
		} else if ok || a.mu.taken.has(slot) {
			err = fmt.Errorf("%w: IDs from %d on are another pod's", ErrRecord, m.HostID)
		}
	}
	if err != nil {
		return false, fmt.Errorf("recover users of pod %s from %s: %w; remove the file when nothing of the pod runs", uid, a.file(uid), err)
	}
	a.take(uid, slot)
	return true, nil
}

// take records a slot. The lock is held.
func (a *Allocator) take(uid observed.UID, slot int) {
	a.mu.taken.set(slot)
	a.mu.slots[uid] = slot
}

func (a *Allocator) mapping(slot int) Mapping {
	return Mapping{HostID: a.first + uint32(slot)*a.per, Length: a.per}
}

// slot is the reverse of mapping.
func (a *Allocator) slot(m Mapping) (int, error) {
	end := uint64(m.HostID) + uint64(m.Length)
	switch {
	case m.ContainerID != 0:
		return 0, fmt.Errorf("%w: user 0 is not mapped", ErrRecord)
	case m.Length != a.per:
		return 0, fmt.Errorf("%w: it has %d IDs, and each pod gets %d", ErrRecord, m.Length, a.per)
	case m.HostID < a.first, end > uint64(a.first)+uint64(a.length), end > math.MaxUint32:
		return 0, fmt.Errorf("%w: IDs from %d on are outside of the %d from %d on that are for pods", ErrRecord, m.HostID, a.length, a.first)
	case (m.HostID-a.first)%a.per != 0:
		return 0, fmt.Errorf("%w: IDs from %d on are parts of two pods' ranges", ErrRecord, m.HostID)
	}
	return int((m.HostID - a.first) / a.per), nil
}

func (a *Allocator) file(uid observed.UID) string {
	return filepath.Join(a.pods, string(uid), "userns")
}

// checkUID: the UID of a static pod comes from its manifest.
func checkUID(uid observed.UID) error {
	if !filepath.IsLocal(string(uid)) || filepath.Base(string(uid)) != string(uid) || uid == "." {
		return fmt.Errorf("userns: pod UID %q is not a name for a directory", uid)
	}
	return nil
}
