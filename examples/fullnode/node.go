package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis"

	"github.com/kubeletkit/kubeletkit/admission"
	"github.com/kubeletkit/kubeletkit/allocation"
	"github.com/kubeletkit/kubeletkit/containergc"
	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/floors"
	"github.com/kubeletkit/kubeletkit/imagepull"
	"github.com/kubeletkit/kubeletkit/keyring"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/metrics"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podenv"
	"github.com/kubeletkit/kubeletkit/podnet"
	"github.com/kubeletkit/kubeletkit/podruntime"
	"github.com/kubeletkit/kubeletkit/podsource"
	"github.com/kubeletkit/kubeletkit/podstore"
	"github.com/kubeletkit/kubeletkit/podsync"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/userns"
	"github.com/kubeletkit/kubeletkit/volume"
)

// The fits: what one room asks for, another one has.
var (
	_ pleg.Runtime              = (*criclient.Observer)(nil)
	_ podworkers.Observer       = (*pleg.Generator)(nil)
	_ podworkers.Syncer         = (*podsync.Syncer)(nil)
	_ podsync.Runtime           = (*podruntime.Runtime)(nil)
	_ podsync.Volumes           = (*volume.Volumes)(nil)
	_ podsync.Statuses          = (*status.Store)(nil)
	_ podsync.Names             = (*podnet.Net)(nil)
	_ podsync.Cgroups           = (*boxes)(nil)
	_ podsync.UserNamespaces    = (*userns.Allocator)(nil)
	_ podsync.Allocations       = (*allocation.Allocations)(nil)
	_ podenv.Objects            = (*podsource.Objects)(nil)
	_ volume.Objects            = (*podsource.Objects)(nil)
	_ keyring.Secrets           = (*podsource.Objects)(nil)
	_ lifecycle.Exec            = (*criclient.Client)(nil)
	_ podruntime.ImageEnsurer   = (*imagepull.Puller)(nil)
	_ podruntime.ImageForgetter = (*imagepull.Puller)(nil)
	_ containergc.Remover       = (*podruntime.Runtime)(nil)
	_ containergc.Lister        = (*criclient.Observer)(nil)
	_ syncloop.SyncHandler      = (*handler)(nil)
	_ syncloop.ExitHandler      = (*handler)(nil)
	_ server.PodLister          = (*handler)(nil)
)

// door is how the node reaches a container runtime.
type door struct {
	runtime cri.RuntimeService
	images  cri.ImageManagerService
	// events tells when to look. Nil: the runtime is looked at once a second.
	events pleg.EventSource
	// pods come in beside those of the configuration.
	pods []podsource.Source
}

// tour is told what happens, for the golden tour. Nil fields are fine.
type tour func(room, what string, pod string, details string)

// node is the whole agent, built and not started.
type node struct {
	floors  [][]floors.Runner
	handler *handler
	workers *podworkers.Workers
	pleg    *pleg.Generator
	server  *server.Server
}

// newNode builds the rooms bottom up: each needs the ones below it. It opens no
// port and starts nothing; only the serving certificate is made, on disk.
func newNode(o options, d door, m *metrics.Metrics, log logr.Logger, tell tour) (*node, error) {
	if tell == nil {
		tell = func(string, string, string, string) {}
	}
	b := &builder{o: o, door: d, metrics: m, log: log, tell: tell, unreadable: func() bool { return false }}
	for _, floor := range []func() error{b.sources, b.outlook, b.equipment, b.pods, b.work, b.hall} {
		if err := floor(); err != nil {
			return nil, err
		}
	}
	return &b.node, nil
}

// builder carries the rooms that are built already.
type builder struct {
	o       options
	door    door
	metrics *metrics.Metrics
	log     logr.Logger
	echoes  echoes
	tell    tour
	node    node

	mux *podsource.Mux
	// unreadable reports whether some manifest can't be read now.
	unreadable func() bool
	observer   *listing
	watch      *runtimeWatch
	pleg       *pleg.Generator
	store      *podstore.Store
	statuses   *status.Store
	volumes    *volume.Volumes
	puller     *imagepull.Puller
	runtime    *podruntime.Runtime
	gc         *containergc.Collector
	workers    *podworkers.Workers
	syncer     *podsync.Syncer
	handler    *handler

	machine   machine
	objects   *podsource.Objects
	boxes     *boxes // nil without cgroups
	names     *podnet.Net
	users     *userns.Allocator // nil without user namespaces
	keyring   *keyring.Keyring
	lifecycle *lifecycle.Runner
	sysctls   admission.Admitter
	alloc     *allocation.Allocations
}

func (b *builder) logFor(room string) logr.Logger { return b.log.WithName(room) }

// sources is where pods come from: the manifest files and the URL that the
// configuration names. A source that is not configured does not exist, so
// nothing ever waits for it.
func (b *builder) sources() error {
	all := slices.Clone(b.door.pods)
	b.objects = podsource.NewObjects(podsource.ObjectsConfig{Changed: b.objectsChanged, Log: b.logFor("podsource")})
	if path := b.o.config.StaticPodPath; path != "" {
		files, err := podsource.NewFiles(podsource.FilesConfig{
			Path: path, NodeName: b.o.nodeName, Objects: b.objects, RescanEvery: b.o.config.FileCheckFrequency.Duration, Log: b.logFor("podsource"),
		})
		if err != nil {
			return err
		}
		all = append(all, files)
		b.unreadable = func() bool {
			return slices.ContainsFunc(files.Errors(), func(e podsource.FileError) bool {
				return !errors.Is(e, fs.ErrNotExist) // what is not there holds nothing
			})
		}
	}
	if url := b.o.config.StaticPodURL; url != "" {
		fetched, err := podsource.NewHTTP(podsource.HTTPConfig{
			URL: url, Header: http.Header(b.o.config.StaticPodURLHeader), NodeName: b.o.nodeName, Objects: b.objects,
			Every: b.o.config.HTTPCheckFrequency.Duration, Log: b.logFor("podsource"),
		})
		if err != nil {
			return err
		}
		all = append(all, fetched)
	}
	var err error
	b.mux, err = podsource.New(podsource.Config{Sources: all, Log: b.logFor("podsource"), Hooks: podsource.Hooks{
		Updated: func(u podsource.Update) {
			for _, pod := range u.Pods {
				b.tell("podsource", u.Op.String(), podName(pod), "from "+u.Source)
			}
		},
	}})
	return err
}

// outlook looks at the runtime: is it well, and what does it hold?
func (b *builder) outlook() error {
	b.watch = newRuntimeWatch(b.door.runtime, b.logFor("runtime"))
	observer, err := criclient.NewObserver(criclient.ObserverConfig{Runtime: b.door.runtime, Log: b.logFor("criclient")})
	if err != nil {
		return err
	}
	b.observer = newListing(observer, func(uid observed.UID) (corev1.PodStatus, bool) { return b.statuses.Get(uid) })
	hooks := b.metrics.PLEG()
	hooks.EventSent = func(e pleg.PodLifecycleEvent) {
		pod, _ := b.pleg.Cache().Get(e.ID)
		b.tell("pleg", "event", pod.Namespace+"/"+pod.Name, string(e.Type)+" "+eventSubject(pod, e.Data))
	}
	b.pleg, err = pleg.New(pleg.Config{Runtime: b.observer, Events: b.door.events, Log: b.logFor("pleg"), Hooks: hooks})
	return err
}

// eventSubject names the container or sandbox of an event.
func eventSubject(pod observed.Pod, id observed.ContainerID) string {
	for _, c := range pod.Containers {
		if c.ID == id {
			return c.Name
		}
	}
	for _, s := range pod.Sandboxes {
		if string(s.ID) == string(id) {
			return "sandbox"
		}
	}
	return "of something gone"
}

// pods is what one pod needs: a place in the books, images, volumes, containers.
func (b *builder) pods() error {
	var err error
	b.store = podstore.New()
	if b.statuses, err = status.New(status.StoreConfig{Dir: b.o.rootDir, Log: b.logFor("status"), Hooks: b.statusHooks()}); err != nil {
		return err
	}
	volumeHooks := b.metrics.Volumes()
	volumeHooks.Event = func(pod *corev1.Pod, eventType, reason, message string) { b.event(pod, "", eventType, reason, message) }
	if b.volumes, err = volume.New(volume.Config{
		RootDir: b.o.rootDir, Objects: b.objects, Allocatable: b.machine.capacity, NoTmpfs: b.o.runtime == "fake", Log: b.logFor("volume"),
		Hooks: volumeHooks,
	}); err != nil {
		return err
	}
	pullHooks := b.metrics.Images()
	pullHooks.Event = b.event
	countPull := pullHooks.Pulled
	pullHooks.Pulled = func(image string, took time.Duration, size uint64, err error) {
		countPull(image, took, size, err)
		b.tell("imagepull", "pull", "", image+outcome(err))
	}
	b.puller, err = imagepull.New(imagepull.Config{
		Images: b.door.images, MaxParallel: maxParallelPulls(b.o), QPS: pullQPS(b.o), Burst: int(b.o.config.RegistryBurst),
		Credentials: b.keyring, RecordsDir: filepath.Join(b.o.rootDir, "image_manager"),
		Verify: imagepull.VerifyPolicy(b.o.config.ImagePullCredentialsVerificationPolicy), Allowlist: b.o.config.PreloadedImagesVerificationAllowlist,
		Log: b.logFor("imagepull"), Hooks: pullHooks,
	})
	if err != nil {
		return err
	}
	runtimeHooks := b.metrics.Runtime()
	runtimeHooks.Event = b.event
	b.runtime, err = podruntime.New(podruntime.Config{
		CRI: b.door.runtime, Images: b.puller, LogDir: b.o.config.PodLogsDir, ContainerLogDir: b.o.containerLogDir,
		NodeMemory: b.machine.memory(), Resources: b.resources(), Lifecycle: b.runHook,
		SeccompDefault: *b.o.config.SeccompDefault, SeccompRoot: filepath.Join(b.o.rootDir, "seccomp"), BackoffMax: b.o.config.CrashLoopBackOff.MaxContainerRestartPeriod.Duration,
		Log: b.logFor("podruntime"), Hooks: runtimeHooks,
	})
	return err
}

func (b *builder) statusHooks() status.Hooks {
	hooks := b.metrics.Status()
	hooks.Changed = func(pod *corev1.Pod, st corev1.PodStatus) {
		b.tell("status", "report", podName(pod), describe(st))
	}
	return hooks
}

// work is who acts on pods, and who clears up behind them.
func (b *builder) work() error {
	var err error
	cfg := podsync.Config{
		Allocations: b.alloc, Names: b.names, Objects: b.objects, Allocatable: b.machine.capacity, Handler: b.watch.Handler,
		Runtime: b.runtime, Volumes: b.volumes, Statuses: b.statuses, RootDir: b.o.rootDir, HostIPs: b.o.nodeIPs,
		RuntimeName: b.watch.Name, NetworkReady: b.watch.NetworkReady,
		SyncAt: func(uid observed.UID, at time.Time) { b.workers.SyncAt(uid, at) },
		Log:    b.logFor("podsync"),
		Hooks: podsync.Hooks{
			Step:    func(pod *corev1.Pod, step string) { b.tell("podsync", "step", podName(pod), step) },
			Planned: func(pod *corev1.Pod, plan podruntime.Plan) { b.tell("podruntime", "plan", podName(pod), plan.String()) },
			Event: func(pod *corev1.Pod, eventType, reason, message string) {
				b.event(pod, "", eventType, reason, message)
			},
		},
	}
	if b.boxes != nil {
		cfg.Cgroups = b.boxes
	}
	if b.users != nil {
		cfg.UserNamespaces = b.users
	}
	if b.syncer, err = podsync.New(cfg); err != nil {
		return err
	}
	workerHooks := b.metrics.Workers(func() map[observed.UID]podworkers.State { return b.workers.States() })
	workerHooks.PhaseChanged = func(pod string, uid observed.UID, from, to podworkers.Phase) {
		b.tell("podworkers", "phase", pod, from.String()+" -> "+to.String())
		if to == podworkers.Finished && b.handler.unwanted(uid) {
			b.gc.PodDone(uid) // the next clean-up may be two seconds away
		}
	}
	b.workers, err = podworkers.New(podworkers.Config{
		Syncer: b.syncer, Observer: b.pleg, Resync: b.o.config.SyncFrequency.Duration, Log: b.logFor("podworkers"), Hooks: workerHooks,
	})
	if err != nil {
		return err
	}
	b.gc, err = containergc.New(containergc.Config{
		Lister: b.observer, Remover: b.runtime, Removable: func(uid observed.UID) bool { return b.handler.removable(uid) },
		SourcesReady: b.mux.AllSeen, LogDir: b.o.config.PodLogsDir, ContainerLogDir: b.o.containerLogDir, Log: b.logFor("containergc"),
		Hooks: containergc.Hooks{Removed: func(uid observed.UID) { b.pleg.MarkDirty(uid) }},
	})
	return err
}

// hall is the loop, its clerk, and the windows through which people look in.
func (b *builder) hall() error {
	rejected, orphaned, restarted := b.metrics.Node()
	desired := b.metrics.Desired()
	b.handler = &handler{
		alloc: b.alloc, nextAnswer: time.Now().Add(allocation.FirstRetry),
		store: b.store, statuses: b.statuses, workers: b.workers, pleg: b.pleg, gc: b.gc,
		heard: b.mux.AllSeen, running: b.observer.running, unreadable: b.unreadable, event: b.event, log: b.logFor("handler"),
		admit: admission.Chain{
			b.sysctls, admission.NodeName(b.o.nodeName), admission.OS("linux"), admission.NodeAffinity(b.nodeObject),
			admission.SupplementalGroups(func() bool { return b.watch.Features().SupplementalGroupsPolicy }),
			admission.Unmapped(podruntime.Unmapped), admission.MaxPods(int(b.o.config.MaxPods)),
			admission.Resources(b.machine.capacity), admission.HostPorts(), admission.AppArmor(func() bool { return b.machine.appArmor }),
		},
		hooks: handlerHooks{
			admitted: func(pod *corev1.Pod, d admission.Decision) {
				if d.OK {
					b.tell("admission", "accept", podName(pod), "")
					return
				}
				rejected(d.Reason)
				b.tell("admission", "reject", podName(pod), d.Reason)
			},
			orphaned: func(pod observed.Pod) {
				orphaned()
				b.logFor("handler").Info("a pod runs that no source wants; it is stopped", "pod", pod.Namespace+"/"+pod.Name, "podUID", pod.UID)
			},
			restored: func(*corev1.Pod) { restarted() },
			counted:  desired.Set,
		},
	}
	b.handler.mu.refused, b.handler.mu.left = map[observed.UID]string{}, map[observed.UID]*corev1.Pod{}
	b.handler.ended, b.handler.held = map[observed.UID]bool{}, map[observed.UID]bool{}
	b.handler.sweeper = (&sweeper{
		pleg: b.pleg, statuses: b.statuses, workers: b.workers, syncer: b.syncer, gc: b.gc, remover: b.runtime,
		unwanted: b.handler.unwanted, listed: b.observer.listed, log: b.logFor("sweeper"),
	}).filled()
	loop, err := syncloop.New(syncloop.Config{
		// Clean-ups come before all sources have been heard, too: the handler
		// knows what it must not do then.
		Handler: b.handler, ConfigCh: b.mux.Updates(), Seen: b.mux.MarkSeen,
		PlegCh: b.pleg.Watch(), SyncCh: b.workers.Due(), ProbeCh: b.handler.sweeper.cleared, SyncFrequency: b.o.config.SyncFrequency.Duration,
		RuntimeErrors: func() error {
			if err := b.watch.Err(); err != nil {
				return err
			}
			if err := b.pleg.Healthy(); err != nil {
				return fmt.Errorf("PLEG is not healthy: %w", err)
			}
			return nil
		},
		Log: b.logFor("syncloop"),
	})
	if err != nil {
		return err
	}
	windows, err := b.windows(loop)
	if err != nil {
		return err
	}
	workers := []floors.Runner{floors.Named("podworkers", b.workers), floors.Named("sweeper", b.handler.sweeper), floors.Named("server", windows)}
	if b.boxes != nil {
		workers = append(workers, floors.Named("cgroup", b.boxes))
	}
	b.node = node{
		handler: b.handler, workers: b.workers, pleg: b.pleg, server: windows,
		floors: [][]floors.Runner{
			{floors.Named("podsource", b.mux)},
			{floors.Named("pleg", b.pleg), floors.Named("runtime", b.watch), floors.Named("containergc", b.gc)},
			workers,
			{floors.Named("syncloop", b.whenOpen(loop))},
		},
	}
	return nil
}

// openWithin is how long the hall waits for the runtime before it opens anyway,
// and says that the runtime is in trouble.
const openWithin = time.Second

// whenOpen runs the hall once the runtime has answered. The loop itself waits in
// growing steps, which would cost the first pod of every start a tenth of a second.
func (b *builder) whenOpen(loop *syncloop.Loop) floors.Runner {
	return floors.RunnerFunc(func(ctx context.Context) error {
		give := time.NewTimer(openWithin)
		defer give.Stop()
		for _, answered := range []<-chan struct{}{b.watch.ready, b.observer.listed} {
			select {
			case <-answered:
			case <-give.C:
				return loop.Run(ctx)
			case <-ctx.Done():
				return nil
			}
		}
		for b.pleg.Healthy() != nil { // it takes note of its first list any moment
			select {
			case <-time.After(time.Millisecond):
			case <-give.C:
				return loop.Run(ctx)
			case <-ctx.Done():
				return nil
			}
		}
		return loop.Run(ctx)
	})
}

// windows are the three ports.
func (b *builder) windows(loop *syncloop.Loop) (*server.Server, error) {
	c := &b.o.config
	health := server.Healthz(server.Ping(), server.Check{Name: "syncloop", Healthy: loop.Healthy})
	routes := server.Routes(server.Parts{Healthz: health, Pods: server.Pods(b.handler), Metrics: b.metrics.Handler()})
	var ls []server.Listener
	if *c.EnableServer {
		who, may, err := access(c, b.logFor("server"))
		if err != nil {
			return nil, err
		}
		var tlsConfig *tls.Config
		if tlsConfig, err = secureTLS(b.o, time.Now()); err != nil {
			return nil, err
		}
		ls = append(ls, server.Listener{
			Name: "secure", Address: address(c.Address, c.Port), TLS: tlsConfig,
			Handler: server.Guard(routes, who, may, b.logFor("server")),
		})
		if c.ReadOnlyPort != 0 {
			ls = append(ls, server.Listener{Name: "read-only", Address: address(c.Address, c.ReadOnlyPort), Handler: routes})
		}
	}
	if *c.HealthzPort != 0 {
		ls = append(ls, server.Listener{
			Name: "healthz", Address: address(c.HealthzBindAddress, *c.HealthzPort),
			Handler: server.Routes(server.Parts{Healthz: health}),
		})
	}
	return server.New(server.Config{Listeners: ls, Log: b.logFor("server")})
}

func address(host string, port int32) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// Run runs the node until ctx ends. Pods stay as they are. The ports come first:
// if another agent holds them, nothing of its pods may be touched.
func (n *node) Run(ctx context.Context) error {
	if err := n.server.Listen(ctx); err != nil {
		return err
	}
	return floors.Run(ctx, n.floors...)
}

// prepare makes the directories that have to be there.
func prepare(o options) error {
	for dir, mode := range map[string]os.FileMode{
		o.rootDir: 0o750, filepath.Join(o.rootDir, "pods"): 0o750, o.config.PodLogsDir: 0o750, o.containerLogDir: 0o755,
	} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, mode); err != nil {
			return fmt.Errorf("make the agent's directories: %w (run as root, or choose --root-dir and podLogsDir that you may write to)", err)
		}
	}
	return nil
}
