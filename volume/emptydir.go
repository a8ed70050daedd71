package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// Where an emptyDir and its marker live below the pod's directory. Tools that
// know the kubelet's layout find them there.
const (
	emptyDirs    = "volumes/kubernetes.io~empty-dir"
	emptyMarkers = "plugins/kubernetes.io~empty-dir"
)

// setUpEmptyDir makes the directory, open to every user of the pod's containers
// (mode 0777 whatever the umask is). A marker beside it says that it is ready:
// from then on its mode belongs to the pod and is left alone.
func (v *Volumes) setUpEmptyDir(uid observed.UID, name string, src *corev1.EmptyDirVolumeSource) (string, error) {
	if src.Medium != corev1.StorageMediumDefault {
		return "", fmt.Errorf("emptyDir medium %q: %w: leave emptyDir.medium empty", src.Medium, ErrUnsupported)
	}
	if err := checkName(name); err != nil {
		return "", fmt.Errorf("volume name %w", err)
	}
	if err := os.MkdirAll(v.pods, 0o750); err != nil {
		return "", fmt.Errorf("create the pods directory: %w", err)
	}
	// Nothing below may lead out of the pods directory, whatever a symlink says.
	root, err := os.OpenRoot(v.pods)
	if err != nil {
		return "", fmt.Errorf("open the pods directory: %w", err)
	}
	defer root.Close()

	dir := path.Join(string(uid), emptyDirs, name)
	marker := path.Join(string(uid), emptyMarkers, name, "ready")
	host := filepath.Join(v.pods, filepath.FromSlash(dir))
	if isDir(root, dir) && exists(root, marker) {
		return host, nil
	}
	if err := root.MkdirAll(path.Dir(dir), 0o750); err != nil {
		return "", fmt.Errorf("create emptyDir: %w", err)
	}
	if err := root.Mkdir(dir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("create emptyDir: %w", err)
	}
	if !isDir(root, dir) {
		return "", fmt.Errorf("create emptyDir: %s is in the way, remove it", host)
	}
	if err := root.Chmod(dir, 0o777); err != nil {
		return "", fmt.Errorf("open emptyDir to all users: %w", err)
	}
	if err := root.MkdirAll(path.Dir(marker), 0o750); err != nil {
		return "", fmt.Errorf("mark emptyDir as ready: %w", err)
	}
	if err := root.WriteFile(marker, nil, 0o640); err != nil {
		return "", fmt.Errorf("mark emptyDir as ready: %w", err)
	}
	return host, nil
}

func isDir(root *os.Root, name string) bool {
	fi, err := root.Lstat(name)
	return err == nil && fi.IsDir()
}

func exists(root *os.Root, name string) bool {
	_, err := root.Lstat(name)
	return err == nil
}
