package allocation

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrCorrupt is in the error for a file of records whose content is not what was
// written.
var ErrCorrupt = errors.New("allocation: the records are damaged")

// checkpoint is the outer form of a file. Data is JSON inside of a string, so that
// the checksum is over exact bytes.
type checkpoint struct {
	Data     string `json:"data"`
	Checksum uint64 `json:"checksum"`
}

type entries struct {
	Entries records `json:"entries,omitempty"`
}

// checksum is the kubelet's: FNV-1a over the text in which it prints a Go string.
func checksum(data string) uint64 {
	h := fnv.New32a()
	h.Write([]byte("(string)"))
	h.Write([]byte(data))
	return uint64(h.Sum32())
}

func encode(list records) ([]byte, error) {
	data, err := json.Marshal(entries{Entries: list})
	if err != nil {
		return nil, err
	}
	return json.Marshal(checkpoint{Data: string(data), Checksum: checksum(string(data))})
}

func decode(data []byte) (records, error) {
	var outer checkpoint
	if err := json.Unmarshal(data, &outer); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if want := checksum(outer.Data); outer.Checksum != want {
		return nil, fmt.Errorf("%w: the checksum is %d and should be %d", ErrCorrupt, outer.Checksum, want)
	}
	var inner entries
	if err := json.Unmarshal([]byte(outer.Data), &inner); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	list := make(records, len(inner.Entries))
	for uid, r := range inner.Entries {
		if string(r.Volumes) == "null" {
			r.Volumes = nil
		}
		if !r.empty() {
			list[uid] = r
		}
	}
	return list, nil
}

// read returns the records of a file; none if it is not there.
func read(path string) (records, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return records{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what pods were granted: %w", err)
	}
	list, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("read what pods were granted from %s: %w (drain the node and remove the file)", path, err)
	}
	return list, nil
}

// write replaces a file so that a crash at any moment leaves the old one or the new
// one.
func write(path string, list records) error {
	data, err := encode(list)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// One name is enough, as calls take turns. What a crash left is overwritten.
	tmp, err := os.OpenFile(filepath.Join(dir, "."+filepath.Base(path)), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
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
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
