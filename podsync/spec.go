package podsync

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podruntime"
	"github.com/kubeletkit/kubeletkit/podspec"
	"github.com/kubeletkit/kubeletkit/volume"
)

// maxHostname is the length of a DNS label, and of a kernel host name that every
// program accepts.
const maxHostname = 63

// sandboxSpec is what the sandbox needs beside the pod. DNS is left to the
// runtime, which hands on the node's own: that is policy Default, and ClusterFirst
// on a node without cluster DNS.
func (s *Syncer) sandboxSpec(pod *corev1.Pod) podruntime.SandboxSpec {
	name := pod.Spec.Hostname
	if name == "" {
		name = pod.Name
	}
	if len(name) > maxHostname {
		name = strings.TrimRight(name[:maxHostname], "-.")
	}
	return podruntime.SandboxSpec{Hostname: name}
}

// containerSpec is what a container needs beside its part of the pod: its mounts,
// with a fresh file for its termination message.
func (s *Syncer) containerSpec(pod *corev1.Pod, start podruntime.Start, volumes map[string]volume.Mounted) (podruntime.ContainerSpec, error) {
	c, _, ok := podspec.Find(pod, start.Name)
	if !ok {
		return podruntime.ContainerSpec{}, fmt.Errorf("container %s is not in the pod", start.Name)
	}
	spec := podruntime.Literal(c)
	for _, m := range c.VolumeMounts {
		v, ok := volumes[m.Name]
		if !ok {
			return spec, fmt.Errorf("container %s mounts volume %q, which is not set up", c.Name, m.Name)
		}
		spec.Mounts = append(spec.Mounts, podruntime.Mount{ContainerPath: m.MountPath, HostPath: v.HostPath, ReadOnly: m.ReadOnly})
	}
	if c.TerminationMessagePath != "" {
		file, err := s.terminationLog(pod, c.Name)
		if err != nil {
			return spec, err
		}
		spec.Mounts = append(spec.Mounts, podruntime.Mount{ContainerPath: c.TerminationMessagePath, HostPath: file})
	}
	return spec, nil
}

// terminationLog makes an empty file, one per start, that any user of the
// container may write to.
func (s *Syncer) terminationLog(pod *corev1.Pod, container string) (string, error) {
	dir, err := s.podDir(observed.UID(pod.UID))
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "containers", container)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return "", fmt.Errorf("make the directory for the termination message of container %s: %w", container, err)
	}
	var id [4]byte
	rand.Read(id[:]) //nolint:errcheck // never fails
	file := filepath.Join(dir, hex.EncodeToString(id[:]))
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return "", fmt.Errorf("make the file for the termination message of container %s: %w", container, err)
	}
	// The umask may have taken bits away.
	if err := f.Chmod(0o666); err != nil {
		f.Close() //nolint:errcheck // nothing was written
		return "", fmt.Errorf("open the termination message of container %s to all users: %w", container, err)
	}
	return file, f.Close()
}
