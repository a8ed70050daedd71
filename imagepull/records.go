package imagepull

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/keyring"
)

// The files are the kubelet's (KEP-2535), and so are their names: k8s.io/kubelet
// has these as Go types, with fifty packages around them. A node that changes from
// one agent to the other keeps its records.
const (
	recordGroup    = "kubelet.config.k8s.io/"
	recordVersion  = recordGroup + "v1beta1"
	pulledKind     = "ImagePulledRecord"
	intentKind     = "ImagePullIntent"
	maxSecrets     = 100 // in one record
	temporaryFiles = ".tmp"
)

// intent is a pull that has begun.
type intent struct {
	metav1.TypeMeta
	Image string `json:"image"`
}

// record is what pulled an image. An image that has none was here before the
// agent; one whose record says nothing is nobody's until a pull proves otherwise.
type record struct {
	metav1.TypeMeta
	LastUpdatedTime metav1.Time `json:"lastUpdatedTime"`
	ImageRef        string      `json:"imageRef"`
	// CredentialMapping has image names as [keyring.Repository] has them.
	CredentialMapping map[string]credentials `json:"credentialMapping,omitempty"`
}

type credentials struct {
	KubernetesSecrets         []secret  `json:"kubernetesSecrets,omitempty"`
	KubernetesServiceAccounts []account `json:"kubernetesServiceAccounts,omitempty"`
	// NodePodsAccessible stands alone: what every pod may use needs no list.
	NodePodsAccessible bool `json:"nodePodsAccessible,omitempty"`
}

type secret struct {
	UID            string `json:"uid"`
	Namespace      string `json:"namespace"`
	Name           string `json:"name"`
	CredentialHash string `json:"credentialHash"`
}

type account struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// records are the files in a directory. What is in memory is only what the files
// can't say: which pulls are under way.
type records struct {
	dir string
	log logr.Logger

	mu struct {
		sync.Mutex
		pulling map[string]int // intents of this process
		// left are images whose pull ended unseen: it may have put them on the node.
		left []string
		// unsaved holds records that could not be written.
		unsaved map[string]record
	}
}

// openRecords finds the intents that an earlier process left.
func openRecords(dir string, log logr.Logger) (*records, error) {
	r := &records{dir: dir, log: log}
	r.mu.pulling = make(map[string]int)
	r.mu.unsaved = make(map[string]record)
	for _, sub := range []string{r.pulled(), r.pulling()} {
		if err := os.MkdirAll(sub, 0o700); err != nil {
			return nil, fmt.Errorf("make the directory of pull records: %w", err)
		}
	}
	files, err := os.ReadDir(r.pulling())
	if err != nil {
		return nil, fmt.Errorf("look for pulls that were interrupted: %w", err)
	}
	for _, f := range files {
		path := filepath.Join(r.pulling(), f.Name())
		if strings.HasSuffix(path, temporaryFiles) {
			_ = os.Remove(path) // it was never an intent, and no pull began
			continue
		}
		var i intent
		err := read(path, intentKind, &i.TypeMeta, &i)
		if err == nil {
			_, err = WithTag(i.Image)
		}
		if err != nil {
			log.Error(err, "An interrupted pull is passed over, since nobody can tell of what", "file", path)
			continue
		}
		r.mu.left = append(r.mu.left, i.Image)
	}
	return r, nil
}

func (r *records) pulled() string  { return filepath.Join(r.dir, "pulled") }
func (r *records) pulling() string { return filepath.Join(r.dir, "pulling") }

// fileName: names of images have characters that names of files can't have.
func fileName(of string) string {
	sum := sha256.Sum256([]byte(of))
	return "sha256-" + hex.EncodeToString(sum[:])
}

// begin notes that an image is about to be pulled. From here on it is not taken
// for one that was always there, whatever happens to this process.
func (r *records) begin(image string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.pulling[image] == 0 {
		i := intent{TypeMeta: metav1.TypeMeta{APIVersion: recordVersion, Kind: intentKind}, Image: image}
		if err := write(filepath.Join(r.pulling(), fileName(image)), i); err != nil {
			return fmt.Errorf("note that a pull begins: %w", err)
		}
	}
	r.mu.pulling[image]++
	return nil
}

// end takes the note back when nobody else pulls the image. unseen is a pull of
// which nobody knows whether the image came: it is [records.leftovers]' then.
func (r *records) end(image string, unseen bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.pulling[image]--; r.mu.pulling[image] <= 0 {
		delete(r.mu.pulling, image)
	}
	if unseen && !slices.Contains(r.mu.left, image) {
		r.mu.left = append(r.mu.left, image)
	}
	r.clear(image)
}

// leftovers are images of which somebody has to find out whether they are there.
func (r *records) leftovers() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.mu.left)
}

// settled says that a leftover has been looked after.
func (r *records) settled(image string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.left = slices.DeleteFunc(r.mu.left, func(l string) bool { return l == image })
	r.clear(image)
}

// clear removes an intent that nobody needs. The lock is held.
func (r *records) clear(image string) {
	if r.mu.pulling[image] > 0 || slices.Contains(r.mu.left, image) {
		return
	}
	if err := os.Remove(filepath.Join(r.pulling(), fileName(image))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Error(err, "The note of a pull that has ended cannot be removed", "image", image)
	}
}

// get returns the record of an image by its ID. found is true for a record that
// can't be read: then err tells why, and the image is nobody's.
func (r *records) get(id string) (rec record, found bool, err error) {
	r.mu.Lock()
	rec, found = r.mu.unsaved[id]
	r.mu.Unlock()
	if found {
		return rec, true, nil
	}
	return r.saved(id) // a file is always a whole one
}

func (r *records) saved(id string) (rec record, found bool, err error) {
	err = read(filepath.Join(r.pulled(), fileName(id)), pulledKind, &rec.TypeMeta, &rec)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return record{}, false, nil
	case err == nil && rec.ImageRef != id:
		err = fmt.Errorf("read the record of image %s: it is of %s", id, rec.ImageRef)
	}
	if err != nil {
		return record{}, true, err
	}
	return rec, true, nil
}

// add notes that an image was pulled under name with credentials from source.
// With pulled false it only adds a source to what the record has, if there is room.
func (r *records) add(id, name string, source keyring.Source, pulled bool) {
	r.change(id, func(rec *record, _ bool) bool {
		had := rec.CredentialMapping[name]
		now, changed := had.with(source)
		if !pulled && (!changed || len(had.KubernetesSecrets) >= maxSecrets) {
			return false
		}
		if rec.CredentialMapping == nil {
			rec.CredentialMapping = make(map[string]credentials)
		}
		rec.CredentialMapping[name] = now
		return true
	})
}

// addUnknown notes that an image came by a pull of which nothing is known. A
// record that is there knows better.
func (r *records) addUnknown(id string) {
	r.change(id, func(_ *record, found bool) bool { return !found })
}

// change applies edit to a record and writes it if edit says so.
func (r *records) change(id string, edit func(rec *record, found bool) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, found := r.mu.unsaved[id]
	if !found {
		var err error
		if rec, found, err = r.saved(id); err != nil {
			r.log.Error(err, "A pull record starts anew")
		}
	}
	if !edit(&rec, found) {
		return
	}
	rec.TypeMeta = metav1.TypeMeta{APIVersion: recordVersion, Kind: pulledKind}
	rec.ImageRef, rec.LastUpdatedTime = id, metav1.Time{Time: time.Now()}
	if err := write(filepath.Join(r.pulled(), fileName(id)), rec); err != nil {
		r.log.Error(err, "A pull record cannot be saved; it holds until the agent restarts", "image", id)
		r.mu.unsaved[id] = rec
		return
	}
	delete(r.mu.unsaved, id)
}

// drop removes the records of images that are not present. Those written since
// the listing are of images that may have come after it; the clock of files may be
// a little behind.
func (r *records) drop(present []string, listed time.Time) error {
	keep := make(map[string]bool, len(present))
	for _, id := range present {
		keep[fileName(id)] = true
	}
	files, err := os.ReadDir(r.pulled())
	if err != nil {
		return fmt.Errorf("list pull records: %w", err)
	}
	listed = listed.Add(-time.Second)
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, rec := range r.mu.unsaved {
		if !keep[fileName(id)] && rec.LastUpdatedTime.Time.Before(listed) {
			delete(r.mu.unsaved, id)
		}
	}
	var errs []error
	for _, f := range files {
		info, err := f.Info()
		if err != nil || keep[f.Name()] || !info.ModTime().Before(listed) {
			continue
		}
		if err := os.Remove(filepath.Join(r.pulled(), f.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("drop a pull record: %w", err))
		}
	}
	return errors.Join(errs...)
}

// read decodes a file of one of the two kinds, in any version so far.
func read(path, kind string, meta *metav1.TypeMeta, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read a pull record: %w", err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("read pull record %s: %w", path, err)
	}
	if meta.Kind != kind || !strings.HasPrefix(meta.APIVersion, recordGroup) {
		return fmt.Errorf("read pull record %s: it is a %q of %q, want %s of %s", path, meta.Kind, meta.APIVersion, kind, recordVersion)
	}
	return nil
}

// write puts a file in its place as a whole, and on the disk: a power cut must not
// turn a private image into one that was always there.
func write(path string, content any) error {
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path+temporaryFiles, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(path+temporaryFiles, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(path+temporaryFiles))
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
