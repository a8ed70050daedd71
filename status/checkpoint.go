package status

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

const (
	fileName = "kubeletkit-status.json"
	// setAsideName is where a damaged file goes; the newest one is kept.
	setAsideName = fileName + ".damaged"
	fileVersion  = 1
	tempName     = fileName + ".tmp"
	// maxFile is far above what etcd accepts for a whole pod (1.5 MiB).
	maxFile = 4 << 20
)

// file is the JSON form. The checksum is over the bytes of Status as they stand.
type file struct {
	Version  int             `json:"version"`
	UID      observed.UID    `json:"uid"`
	Checksum string          `json:"checksum"`
	Status   json.RawMessage `json:"status"`
}

// durable says in a few words what of st has to survive a crash; empty if there
// is nothing, so that the plain start of a plain pod writes no file. Restart
// counts and results always count. Where a container may not be restarted for
// ever, so does what each of them is doing: that it has run is why it may not run
// again.
func durable(pod *corev1.Pod, st *corev1.PodStatus) string {
	var b strings.Builder
	if IsTerminal(st.Phase) {
		fmt.Fprintf(&b, "%s %s\n", st.Phase, st.Reason)
	}
	if pod.Spec.ActiveDeadlineSeconds != nil && st.StartTime != nil {
		b.WriteString("has a deadline\n") // which counts from the start time
	}
	if isTrue(st.Conditions, corev1.AllContainersRestarting) {
		b.WriteString("all containers restart\n")
	}
	limited := IsTerminal(st.Phase)
	for c, kind := range podspec.All(pod) {
		limited = limited || kind == podspec.Ephemeral || podspec.PolicyOf(pod, c) != corev1.RestartPolicyAlways
	}
	for c, kind := range podspec.All(pod) {
		cs := find(*statusesOf(st, kind), c.Name)
		if cs == nil {
			continue
		}
		if cs.RestartCount > 0 {
			fmt.Fprintf(&b, "%s restarted %d\n", c.Name, cs.RestartCount)
		}
		if !limited {
			continue
		}
		if cs.State.Running != nil {
			fmt.Fprintf(&b, "%s runs %s\n", c.Name, cs.ContainerID)
		}
		if end := ended(cs); end != nil {
			fmt.Fprintf(&b, "%s ended %s %d %s\n", c.Name, end.ContainerID, end.ExitCode, end.Reason)
			if cs.State.Terminated != nil && !mayComeBack(pod, c, kind, end.ExitCode) {
				b.WriteString("for good\n") // it must not be seen to wait again
			}
		}
	}
	return b.String()
}

// keep brings the pod's file up to date, if anything that it is for has changed.
func (s *Store) keep(e *entry, pod *corev1.Pod, old *corev1.PodStatus, st corev1.PodStatus) error {
	if s.dir == "" {
		return nil
	}
	if e.loaded {
		e.saved, e.loaded = durable(pod, old), false
	}
	want := durable(pod, &st)
	if want == e.saved {
		return nil
	}
	if err := s.save(observed.UID(pod.UID), st); err != nil {
		return err
	}
	if e.saved == "" {
		// The pod's directory may be as new as the file.
		if err := syncDir(s.dir); err != nil {
			return err
		}
	}
	e.saved = want
	return nil
}

// podDir refuses a UID that is not one plain directory name: a static pod's
// comes from its manifest.
func (s *Store) podDir(uid observed.UID) (string, error) {
	name := string(uid)
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return "", fmt.Errorf("pod UID %q cannot be the name of a directory", name)
	}
	return filepath.Join(s.dir, name), nil
}

// save writes the file so that a crash at any moment leaves the old one or the
// new one.
func (s *Store) save(uid observed.UID, st corev1.PodStatus) error {
	dir, err := s.podDir(uid)
	if err != nil {
		return err
	}
	data, err := encode(uid, st)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	// One name is enough: the pod's turn is held, and what a crash left under it
	// is overwritten.
	tmp, err := os.OpenFile(filepath.Join(dir, tempName), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), filepath.Join(dir, fileName)); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (s *Store) load(uid observed.UID) (corev1.PodStatus, bool, error) {
	var none corev1.PodStatus
	dir, err := s.podDir(uid)
	if err != nil {
		return none, false, fmt.Errorf("load status: %w", err)
	}
	path := filepath.Join(dir, fileName)
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return none, false, nil
	}
	if err != nil {
		return none, false, fmt.Errorf("load status of pod %s: %w", uid, err)
	}
	st, err := decode(uid, data)
	if err == nil {
		return st, true, nil
	}
	aside := filepath.Join(dir, setAsideName)
	if e := os.Rename(path, aside); e != nil {
		return none, false, fmt.Errorf("load status of pod %s: set the damaged file aside: %w", uid, e)
	}
	s.log.Info("Damaged status file set aside; the pod's status is rebuilt from the runtime",
		"podUID", uid, "file", aside, "reason", err.Error())
	if s.hooks.SetAside != nil {
		s.hooks.SetAside(uid, aside, err)
	}
	return none, false, nil
}

// readFile returns at most one byte more than a good file has.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

func (s *Store) unlink(uid observed.UID) error {
	dir, err := s.podDir(uid)
	if err != nil {
		return fmt.Errorf("remove status: %w", err)
	}
	for _, name := range []string{fileName, tempName, setAsideName} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove status of pod %s: %w", uid, err)
		}
	}
	return nil
}

func encode(uid observed.UID, st corev1.PodStatus) ([]byte, error) {
	body, err := json.Marshal(st)
	if err != nil {
		return nil, err
	}
	return json.Marshal(file{Version: fileVersion, UID: uid, Checksum: checksum(body), Status: body})
}

func decode(uid observed.UID, data []byte) (corev1.PodStatus, error) {
	var f file
	if len(data) > maxFile {
		return corev1.PodStatus{}, fmt.Errorf("longer than %d bytes", maxFile)
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return corev1.PodStatus{}, err
	}
	switch {
	case f.Version != fileVersion:
		return corev1.PodStatus{}, fmt.Errorf("version %d, want %d", f.Version, fileVersion)
	case f.UID != uid:
		return corev1.PodStatus{}, fmt.Errorf("is for pod %q", f.UID)
	case f.Checksum != checksum(f.Status):
		return corev1.PodStatus{}, errors.New("checksum does not match")
	}
	var st corev1.PodStatus
	if err := json.Unmarshal(f.Status, &st); err != nil {
		return corev1.PodStatus{}, err
	}
	return st, nil
}

func checksum(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha256:" + hex.EncodeToString(sum[:])
}
