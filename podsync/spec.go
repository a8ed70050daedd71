package podsync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podenv"
	"github.com/kubeletkit/kubeletkit/podruntime"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// maxHostname is the length of a DNS label, and of a kernel host name that every
// program accepts.
const maxHostname = 63

// sandboxSpec is what the sandbox needs beside the pod and its cgroup.
func (s *Syncer) sandboxSpec(pod *corev1.Pod) (spec podruntime.SandboxSpec, can observed.HandlerFeatures, err error) {
	if spec.RuntimeHandler, can, err = s.cfg.Handler(pod); err != nil {
		return spec, can, err
	}
	if s.cfg.Names == nil {
		spec.Hostname = shortName(pod)
	} else {
		if spec.Hostname, err = s.cfg.Names.SandboxHostname(pod); err != nil {
			return spec, can, err
		}
		if spec.DNS, err = s.cfg.Names.DNS(pod); err != nil {
			return spec, can, err
		}
	}
	if pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers {
		spec.UserNamespace, err = s.userNamespace(pod, spec.RuntimeHandler, can)
	}
	return spec, can, err
}

func shortName(pod *corev1.Pod) string {
	name := pod.Spec.Hostname
	if name == "" {
		name = pod.Name
	}
	if len(name) > maxHostname {
		name = strings.TrimRight(name[:maxHostname], "-.")
	}
	return name
}

// userNamespace maps the pod's users. The words are the kubelet's.
func (s *Syncer) userNamespace(pod *corev1.Pod, handler string, can observed.HandlerFeatures) (*runtimeapi.UserNamespace, error) {
	switch {
	case s.cfg.UserNamespaces == nil:
		return nil, errors.New("can't set `spec.hostUsers: false`, this node gives out no user namespaces")
	case !can.UserNamespaces && handler == "":
		return nil, errors.New("can't set `spec.hostUsers: false`, runtime does not support user namespaces")
	case !can.UserNamespaces:
		return nil, fmt.Errorf("can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces", handler)
	}
	m, err := s.cfg.UserNamespaces.Map(observed.UID(pod.UID))
	if err != nil {
		return nil, err
	}
	one := func() []*runtimeapi.IDMapping {
		return []*runtimeapi.IDMapping{{HostId: m.HostID, ContainerId: m.ContainerID, Length: m.Length}}
	}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: one(), Gids: one()}, nil
}

// containerSpec is what a container needs beside its part of the pod: environment,
// mounts, and a fresh file for its termination message.
func (s *Syncer) containerSpec(ctx context.Context, pod *corev1.Pod, seen observed.Pod, start podruntime.Start, sandbox podruntime.Sandbox, g ground) (podruntime.ContainerSpec, error) {
	c, _, ok := podspec.Find(pod, start.Name)
	if !ok {
		return podruntime.ContainerSpec{}, fmt.Errorf("container %s is not in the pod", start.Name)
	}
	addresses := podspec.Addresses{PodIPs: sandbox.IPs, HostIPs: s.cfg.HostIPs}
	if pod.Spec.HostNetwork {
		addresses.PodIPs = s.cfg.HostIPs
	}
	env, err := podenv.Build(ctx, podenv.Inputs{
		Pod: pod, Container: c, Addresses: addresses, Allocatable: s.cfg.Allocatable,
		Objects: s.cfg.Objects, Services: s.cfg.Services,
		ReadFile: func(name, path string) ([]byte, error) { return readFile(g, name, path) },
	})
	if err != nil {
		return podruntime.ContainerSpec{}, err
	}
	spec := podruntime.ContainerSpec{Command: env.Expand(c.Command), Args: env.Expand(c.Args), Env: make([]podruntime.EnvVar, len(env.Vars))}
	for i, v := range env.Vars {
		spec.Env[i] = podruntime.EnvVar(v)
	}
	if spec.Mounts, err = s.mounts(ctx, pod, c, start, env, g); err != nil {
		return spec, err
	}
	hosts, err := s.hosts(pod, c, addresses.PodIPs)
	if err != nil {
		return spec, err
	}
	spec.Mounts = append(spec.Mounts, hosts...)
	if c.TerminationMessagePath != "" {
		file, err := s.terminationLog(pod, seen, c.Name, start.Attempt)
		if err != nil {
			return spec, err
		}
		spec.Mounts = append(spec.Mounts, podruntime.Mount{ContainerPath: c.TerminationMessagePath, HostPath: file, SELinuxRelabel: true})
	}
	if s.cfg.Allocations != nil {
		if err := s.cfg.Allocations.SetActuated(observed.UID(pod.UID), c.Name, c.Resources); err != nil {
			return spec, err
		}
	}
	return spec, nil
}

// mostEnvFile bounds a file of variables: more than the kernel takes is no use.
const mostEnvFile = 1 << 20

// readFile reads a file of a volume for the environment. The pod wrote it, so it
// may be a link to anywhere, or a pipe that nobody writes to.
func readFile(g ground, name, path string) ([]byte, error) {
	v, ok := g.volumes[name]
	if !ok || v.HostPath == "" {
		return nil, fmt.Errorf("volume %q is not set up", name)
	}
	root, err := os.OpenRoot(v.HostPath)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(path, os.O_RDONLY|nonBlock, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("%s of volume %q is not a file", path, name)
	}
	data, err := io.ReadAll(io.LimitReader(f, mostEnvFile+1))
	if len(data) > mostEnvFile {
		return nil, fmt.Errorf("%s of volume %q has more than %d bytes", path, name, mostEnvFile)
	}
	return data, err
}

const hostsPath = "/etc/hosts"

// hosts writes the pod's /etc/hosts and mounts it, unless the container mounts one
// of its own. Before a pod has an address there is nothing to write.
func (s *Syncer) hosts(pod *corev1.Pod, c *corev1.Container, ips []string) ([]podruntime.Mount, error) {
	if s.cfg.Names == nil || len(ips) == 0 && !pod.Spec.HostNetwork {
		return nil, nil
	}
	for _, m := range c.VolumeMounts {
		if path.Clean(m.MountPath) == hostsPath {
			return nil, nil
		}
	}
	content, err := s.cfg.Names.Hosts(pod, ips)
	if err != nil {
		return nil, fmt.Errorf("make the hosts file of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	dir, err := s.podDir(observed.UID(pod.UID))
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "etc-hosts")
	if err := overwrite(file, content); err != nil {
		return nil, fmt.Errorf("write the hosts file of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return []podruntime.Mount{{ContainerPath: hostsPath, HostPath: file, SELinuxRelabel: true}}, nil
}

// overwrite gives a file new content in its place: containers that run have this
// very file mounted. They must not find it empty while another container of the pod
// starts, so what is there already is not written, and the end is cut off last.
func overwrite(file string, content []byte) error {
	if old, err := os.ReadFile(file); err != nil || !bytes.Equal(old, content) {
		f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		_, err = f.Write(content)
		if err == nil {
			err = f.Truncate(int64(len(content)))
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return os.Chmod(file, 0o644) // whatever the umask is
}

// terminationLog makes an empty file that any user of the container may write to,
// one per attempt: a start that is tried again has the same. Files of instances that
// the runtime has no record of any more are removed, or a container that fails for
// weeks would fill the disk with them.
func (s *Syncer) terminationLog(pod *corev1.Pod, seen observed.Pod, container string, attempt int) (string, error) {
	dir, err := s.podDir(observed.UID(pod.UID))
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "containers", container)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return "", fmt.Errorf("make the directory for the termination message of container %s: %w", container, err)
	}
	oldest := attempt
	for _, c := range seen.Instances(container) {
		oldest = min(oldest, c.RestartCount)
	}
	file := filepath.Join(dir, strconv.Itoa(attempt))
	if err := errors.Join(removeBefore(dir, oldest), removeIfThere(file)); err != nil {
		return "", fmt.Errorf("remove old termination messages of container %s: %w", container, err)
	}
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

// removeBefore removes the files of lower attempts. A kubelet's have other names, and
// stay until the pod is forgotten.
func removeBefore(dir string, attempt int) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if n, numErr := strconv.Atoi(e.Name()); numErr == nil && n < attempt && strconv.Itoa(n) == e.Name() {
			err = errors.Join(err, removeIfThere(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

func removeIfThere(file string) error {
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
