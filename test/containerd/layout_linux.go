package containerd

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// namespace is where containerd's CRI plugin keeps its containers.
const namespace = "k8s.io"

// layout is where everything of one daemon is. It follows from the folder
// alone, so that a later process can clean up without the Daemon value.
type layout struct {
	dir     string
	root    string // images and metadata: survives a reap
	state   string // what /run is to a machine: emptied by a reap
	bundles string // one folder per task
	netns   string
	socket  string
	config  string
	logFile string
	pidFile string
	lock    string
	cniConf string
	cniData string
	images  string
	ids     string // the ledger
	// parentOurs is a file: no other containerd had pods when we started.
	parentOurs string
	network    string // name of the CNI network and of its bridge
}

func layoutOf(dir string) layout {
	sum := sha256.Sum256([]byte(dir))
	state := filepath.Join(dir, "state")
	return layout{
		dir:        dir,
		root:       filepath.Join(dir, "root"),
		state:      state,
		bundles:    filepath.Join(state, "io.containerd.runtime.v2.task", namespace),
		netns:      filepath.Join(state, "io.containerd.grpc.v1.cri", "netns"),
		socket:     filepath.Join(dir, "containerd.sock"),
		config:     filepath.Join(dir, "config.toml"),
		logFile:    filepath.Join(dir, "containerd.log"),
		pidFile:    filepath.Join(dir, "containerd.pid"),
		lock:       filepath.Join(dir, "lock"),
		cniConf:    filepath.Join(dir, "cni", "conf"),
		cniData:    filepath.Join(dir, "cni", "data"),
		images:     filepath.Join(dir, "images"),
		ids:        filepath.Join(dir, "ids"),
		parentOurs: filepath.Join(dir, "cgroup-parent-ours"),
		// A link's name has at most 15 bytes.
		network: "kk" + hex.EncodeToString(sum[:5]),
	}
}

func (l layout) make() error {
	for _, dir := range []string{l.root, l.bundles, l.cniConf, l.cniData, l.images} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return err
		}
	}
	return nil
}

// lockDir makes sure that no other process's daemon lives in the folder.
func lockDir(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: another process runs a containerd there", path)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}
