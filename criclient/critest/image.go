package critest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Image is an image in a registry or in the runtime's store.
type Image struct {
	Ref      string // required; short names mean what they mean to containerd
	Behavior Behavior
	ID       string // sha256:…, of the configuration; default made from Ref. Equal IDs are one image under several names
	Digest   string // sha256:…, of the manifest; default made from ID
	Size     uint64 // default 1 MiB
	User     string // as in a Dockerfile: a name, a number, or either with :group; a name but root is 1000
	Pinned   bool   // the runtime asks that nobody removes it

	// PullTakes is how long a pull takes.
	PullTakes time.Duration
	// Username and Password, if set, must come with the pull.
	Username, Password string
}

// AnyImage is a Config.Registry that has every image. Its containers run for ever.
func AnyImage(ref string) (Image, bool) { return Image{Ref: ref}, true }

// localImage is an image in the store, with all the names it has there.
type localImage struct {
	Image
	id      string
	tags    map[string]bool
	digests map[string]bool
}

func (m *localImage) name() string {
	names := slices.Sorted(maps.Keys(m.tags))
	if len(names) == 0 {
		return m.digestName()
	}
	return names[0]
}

func (m *localImage) digestName() string {
	if names := slices.Sorted(maps.Keys(m.digests)); len(names) > 0 {
		return names[0]
	}
	return m.id
}

func (m *localImage) user() (uid *runtimeapi.Int64Value, name string) {
	user, _, _ := strings.Cut(m.User, ":")
	if n, err := strconv.ParseInt(user, 10, 64); err == nil {
		return &runtimeapi.Int64Value{Value: n}, ""
	}
	return nil, user
}

func (m *localImage) entry() *runtimeapi.Image {
	uid, name := m.user()
	return &runtimeapi.Image{
		Id:          m.id,
		RepoTags:    slices.Sorted(maps.Keys(m.tags)),
		RepoDigests: slices.Sorted(maps.Keys(m.digests)),
		Size:        m.Size,
		Uid:         uid,
		Username:    name,
		Pinned:      m.Pinned,
	}
}

// AddImage puts an image into the store, as if it had been pulled, and into the
// registry. It panics on a reference that is none. Adding it again changes what
// its containers do from their next start.
func (r *Runtime) AddImage(ref string, b Behavior) { r.Load(Image{Ref: ref, Behavior: b}) }

// Load is [Runtime.AddImage] with everything an image can say.
func (r *Runtime) Load(img Image) {
	full := r.Publish(img)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store(r.published[full], full)
}

// Publish puts an image into the registry only: it has to be pulled before a
// container can be made from it. It returns the reference written out, and
// panics on one that is none.
func (r *Runtime) Publish(img Image) string {
	full, err := fullReference(img.Ref)
	if err != nil {
		panic("critest: " + err.Error())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.published[full] = withDefaults(img, full)
	return full
}

func withDefaults(img Image, full string) Image {
	img.Ref = full
	img.ID = cmp.Or(img.ID, digestOf("config", full))
	if _, digest, ok := strings.Cut(full, "@"); ok {
		img.Digest = digest
	}
	img.Digest = cmp.Or(img.Digest, digestOf("manifest", img.ID))
	img.Size = cmp.Or(img.Size, 1<<20)
	return img
}

// store adds an image under one more name. The lock is held.
func (r *Runtime) store(img Image, full string) *localImage {
	m := r.imageIDs[img.ID]
	if m == nil {
		m = &localImage{id: img.ID, tags: map[string]bool{}, digests: map[string]bool{}}
		r.imageIDs[m.id] = m
	}
	m.Image = img
	byDigest := repository(full) + "@" + img.Digest
	m.digests[byDigest] = true
	r.point(byDigest, m)
	if !strings.Contains(full, "@") {
		m.tags[full] = true
		r.point(full, m)
	}
	return m
}

// point makes a name mean an image, and takes it from the image that had it: a
// tag that was pushed again.
func (r *Runtime) point(name string, m *localImage) {
	if old := r.present[name]; old != nil && old != m {
		delete(old.tags, name)
		delete(old.digests, name)
	}
	r.present[name] = m
}

// resolveLocal finds an image by reference or by ID, with or without sha256:,
// whole or the unique beginning of it.
func (r *Runtime) resolveLocal(ref string) *localImage {
	if m := r.imageIDs[ref]; m != nil {
		return m
	}
	if m := r.imageIDs["sha256:"+ref]; m != nil {
		return m
	}
	if full, err := fullReference(ref); err == nil && r.present[full] != nil {
		return r.present[full]
	}
	if len(ref) < 12 {
		return nil
	}
	m, err := findPrefix(r.imageIDs, "image", "sha256:"+strings.TrimPrefix(ref, "sha256:"))
	if err != nil {
		return nil
	}
	return m
}

func (r *Runtime) pullImage(ctx context.Context, req *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	full, err := fullReference(req.GetImage().GetImage())
	if err != nil {
		return nil, err
	}
	img, ok := r.lookUp(full)
	if !ok {
		return nil, status.Errorf(codes.NotFound, "failed to pull and unpack image %q: failed to resolve reference %q: %s: not found", full, full, full)
	}
	if img.Username != "" || img.Password != "" {
		if a := req.GetAuth(); a.GetUsername() != img.Username || a.GetPassword() != img.Password {
			return nil, status.Errorf(codes.Unknown, "failed to pull and unpack image %q: failed to resolve reference %q: "+
				"pull access denied, repository does not exist or may require authorization: authorization failed", full, full)
		}
	}
	if img.PullTakes > 0 {
		t := time.NewTimer(img.PullTakes)
		defer t.Stop()
		if err := r.wait(ctx, t.C); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.diskFull {
		return nil, errDisk("pull and unpack image \""+full+"\"", "/var/lib/critest/content")
	}
	return &runtimeapi.PullImageResponse{ImageRef: r.store(img, full).id}, nil
}

// lookUp finds an image in the registry, by digest too, or asks Config.Registry.
func (r *Runtime) lookUp(full string) (Image, bool) {
	r.mu.Lock()
	img, ok := r.published[full]
	if repo, digest, by := strings.Cut(full, "@"); by && !ok {
		for name, candidate := range r.published {
			if repository(name) == repo && candidate.Digest == digest {
				img, ok = candidate, true
			}
		}
	}
	r.mu.Unlock()
	if ok || r.cfg.Registry == nil {
		return img, ok
	}
	img, ok = r.cfg.Registry(full)
	return withDefaults(img, full), ok
}

func (r *Runtime) listImages(_ context.Context, req *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	return r.imageList(req.GetFilter(), r.cfg.MaxAnswer)
}

func (r *Runtime) imageList(f *runtimeapi.ImageFilter, limit int) (*runtimeapi.ListImagesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	resp := &runtimeapi.ListImagesResponse{}
	if ref := f.GetImage().GetImage(); ref != "" {
		if m := r.resolveLocal(ref); m != nil {
			resp.Images = append(resp.Images, m.entry())
		}
		return resp, nil
	}
	for _, id := range slices.Sorted(maps.Keys(r.imageIDs)) {
		resp.Images = append(resp.Images, r.imageIDs[id].entry())
	}
	if err := fits(limit, resp.Images, func(m *runtimeapi.Image) int { return entrySize(m) }); err != nil {
		return nil, err
	}
	return resp, nil
}

func (r *Runtime) imageStatus(_ context.Context, req *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.resolveLocal(req.GetImage().GetImage())
	if m == nil {
		return &runtimeapi.ImageStatusResponse{}, nil // absence is no error in the CRI
	}
	resp := &runtimeapi.ImageStatusResponse{Image: m.entry()}
	if req.GetVerbose() {
		resp.Info = map[string]string{"info": "{}"}
	}
	return resp, nil
}

// removeImage removes an image with all its names. Containers made from it go on.
func (r *Runtime) removeImage(_ context.Context, req *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.resolveLocal(req.GetImage().GetImage()); m != nil {
		delete(r.imageIDs, m.id)
		maps.DeleteFunc(r.present, func(_ string, o *localImage) bool { return o == m })
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

func (r *Runtime) imageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var used uint64
	for _, m := range r.imageIDs {
		used += m.Size
	}
	usage := func(used, inodes uint64) []*runtimeapi.FilesystemUsage {
		return []*runtimeapi.FilesystemUsage{filesystem(r.now(), used, inodes)}
	}
	return &runtimeapi.ImageFsInfoResponse{
		ImageFilesystems:     usage(used, uint64(len(r.imageIDs))*100),
		ContainerFilesystems: usage(uint64(len(r.containers))*layerBytes, uint64(len(r.containers))*layerInodes),
	}, nil
}
