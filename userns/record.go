package userns

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// record is the file's content, in the kubelet's format.
type record struct {
	UIDMappings []recordMapping `json:"uidMappings"`
	GIDMappings []recordMapping `json:"gidMappings"`
}

type recordMapping struct {
	HostID      uint32 `json:"hostId"`
	ContainerID uint32 `json:"containerId"`
	Length      uint32 `json:"length"`
}

const (
	dirMode   = 0o750 // a pod's directory, as everywhere
	mostBytes = 1 << 16
	tmpSuffix = ".tmp"
)

func encode(m Mapping) []byte {
	one := []recordMapping{recordMapping(m)}
	data, err := json.Marshal(record{one, one})
	if err != nil {
		panic(err) // numbers have a JSON
	}
	return data
}

func decode(data []byte) (Mapping, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return Mapping{}, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	switch {
	case len(r.UIDMappings) != 1, len(r.GIDMappings) != 1:
		return Mapping{}, fmt.Errorf("%w: it has %d mappings of users and %d of groups, want one of each", ErrRecord, len(r.UIDMappings), len(r.GIDMappings))
	case r.UIDMappings[0] != r.GIDMappings[0]:
		return Mapping{}, fmt.Errorf("%w: users and groups are mapped differently", ErrRecord)
	}
	return Mapping(r.UIDMappings[0]), nil
}

func read(path string) (Mapping, error) {
	fi, err := os.Lstat(path)
	switch {
	case err != nil:
		return Mapping{}, err
	case !fi.Mode().IsRegular(), fi.Size() > mostBytes:
		return Mapping{}, fmt.Errorf("%w: it is no small file", ErrRecord)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Mapping{}, err
	}
	return decode(data)
}

// write makes the file, whole or not at all, and returns when it is on disk.
func write(path string, m Mapping) error {
	dir, tmp := filepath.Dir(path), path+tmpSuffix
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return err
	}
	err := writeFile(tmp, encode(m))
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		// Nobody has heard of the mapping yet. What can't be removed either is
		// found by the next Map, and compared with what others have.
		_, _ = os.Remove(tmp), os.Remove(path)
	}
	return err
}

func writeFile(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// remove returns when the file is gone from the disk, too, and what a write that was
// cut short has left.
func remove(path string) error {
	gone := 0
	for _, name := range []string{path, path + tmpSuffix} {
		err := os.Remove(name)
		if errors.Is(err, os.ErrNotExist) {
			gone++
		} else if err != nil {
			return err
		}
	}
	if gone == 2 {
		return nil // perhaps with the whole directory
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
