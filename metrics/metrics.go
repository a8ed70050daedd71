package metrics

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/imagepull"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podruntime"
	"github.com/kubeletkit/kubeletkit/podspec"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/status"
)

// Metrics holds all metrics of one node. Each of its methods that hands out hooks
// or gauges is called once: it registers the metrics behind them.
type Metrics struct {
	registry *prometheus.Registry
	factory  factory
}

// New returns Metrics with the process' own figures and the node's name in them.
func New(nodeName string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.factory = factory{m.registry}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.factory.gauge("kubelet_node_name", "The node's name. The count is always 1.", "node").WithLabelValues(nodeName).Set(1)
	return m
}

// Handler serves the metrics in the Prometheus text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Registry is where the metrics are; an embedder may add to it.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// CRI returns hooks that count every call to the runtime.
func (m *Metrics) CRI() criclient.Hooks {
	total := m.factory.counter("kubelet_runtime_operations_total", "Calls to the container runtime, by type.", "operation_type")
	failed := m.factory.counter("kubelet_runtime_operations_errors_total", "Calls to the container runtime that failed, by type.", "operation_type")
	took := m.factory.histogram("kubelet_runtime_operations_duration_seconds", "How long calls to the container runtime took, by type.",
		prometheus.ExponentialBuckets(.005, 2.5, 14), "operation_type")
	return criclient.Hooks{Called: func(method string, d time.Duration, err error) {
		op := operationType(method)
		total.WithLabelValues(op).Inc()
		took.WithLabelValues(op).Observe(d.Seconds())
		if err != nil {
			failed.WithLabelValues(op).Inc()
		}
	}}
}

// operationType is the kubelet's word for a CRI method.
func operationType(method string) string {
	switch method {
	case "UpdateContainerResources":
		return "update_container"
	case "RuntimeConfig":
		return "runtime_config"
	case "ListPodSandboxMetrics":
		return "list_podsandbox_metrics"
	}
	method = strings.Replace(method, "PodSandbox", "Podsandbox", 1)
	var b strings.Builder
	for i, r := range method {
		if r >= 'A' && r <= 'Z' && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}

// PLEG returns hooks that measure how the runtime is looked at.
func (m *Metrics) PLEG() pleg.Hooks {
	relist := m.factory.histogram("kubelet_pleg_relist_duration_seconds", "How long a relist took.", prometheus.DefBuckets).WithLabelValues()
	interval := m.factory.histogram("kubelet_pleg_relist_interval_seconds", "Time between two relists.", prometheus.DefBuckets).WithLabelValues()
	inspect := m.factory.histogram("kubelet_pleg_pod_relist_duration_seconds", "How long looking at one pod took.", prometheus.DefBuckets).WithLabelValues()
	seen := m.factory.gauge("kubelet_pleg_last_seen_seconds", "When the last good relist was, in seconds since 1970.").WithLabelValues()
	m.factory.counter("kubelet_pleg_discard_events", "Events that were lost. Always 0: a slow reader finds them merged.").WithLabelValues()
	pods := m.factory.gauge("kubelet_running_pods", "Pods with a sandbox that is ready.").WithLabelValues()
	containers := m.factory.gauge("kubelet_running_containers", "Containers by state.", "container_state").WithLabelValues("running")
	connected := m.factory.counter("kubelet_evented_pleg_connection_success_count", "Times the runtime's event stream was opened.").WithLabelValues()
	broken := m.factory.counter("kubelet_evented_pleg_connection_error_count", "Times the runtime's event stream broke or did not open.").WithLabelValues()
	missed := m.factory.counter("kubeletkit_pleg_unannounced_changes_total", "Changes that a relist found and no event announced.").WithLabelValues()
	var last time.Time
	return pleg.Hooks{
		Relisted: func(took time.Duration, _ int, err error) {
			now := time.Now()
			if !last.IsZero() {
				interval.Observe(now.Sub(last).Seconds())
			}
			last = now
			relist.Observe(took.Seconds())
			if err == nil {
				seen.Set(float64(now.Add(-took).UnixNano()) / 1e9)
			}
		},
		Running: func(p, c int) {
			pods.Set(float64(p))
			containers.Set(float64(c))
		},
		Inspected:       func(_ observed.UID, took time.Duration, _ error) { inspect.Observe(took.Seconds()) },
		Unannounced:     func(observed.UID) { missed.Inc() },
		StreamConnected: connected.Inc,
		StreamEnded:     func(error) { broken.Inc() },
	}
}

// Workers returns hooks that measure the pod workers. states is asked at each
// scrape: it is [podworkers.Workers.States].
func (m *Metrics) Workers(states func() map[observed.UID]podworkers.State) podworkers.Hooks {
	took := m.factory.histogram("kubelet_pod_worker_duration_seconds", "How long one round of a pod worker took, by operation.", prometheus.DefBuckets, "operation_type")
	start := m.factory.histogram("kubelet_pod_worker_start_duration_seconds", "Time from first seeing a pod to starting its worker.", prometheus.DefBuckets).WithLabelValues()
	containers := m.factory.histogram("kubelet_containers_per_pod_count", "Containers per pod.", []float64{1, 2, 4, 8, 16}).WithLabelValues()
	m.registry.MustRegister(workingPods{
		desc:   prometheus.NewDesc("kubelet_working_pods", "Pods the workers know, by where they are in their life and by who wants them.", []string{"lifecycle", "config", "static"}, nil),
		states: states,
	})
	return podworkers.Hooks{
		Started: func(pod *corev1.Pod, waited time.Duration) {
			start.Observe(waited.Seconds())
			containers.Observe(float64(len(pod.Spec.Containers)))
		},
		Synced: func(r podworkers.Round) { took.WithLabelValues(r.Op).Observe(r.Took.Seconds()) },
	}
}

// workingPods counts the workers' pods when it is asked.
type workingPods struct {
	desc   *prometheus.Desc
	states func() map[observed.UID]podworkers.State
}

func (w workingPods) Describe(ch chan<- *prometheus.Desc) { ch <- w.desc }

func (w workingPods) Collect(ch chan<- prometheus.Metric) {
	counts := map[[2]string]float64{}
	for _, s := range w.states() {
		lifecycle, config := "sync", "desired"
		switch {
		case s.Phase >= podworkers.Stopped:
			lifecycle = "terminated"
		case s.Phase >= podworkers.StopRequested:
			lifecycle = "terminating"
		}
		switch {
		case s.RuntimeOnly:
			config = "runtime_only"
		case s.Deleted:
			config = "orphan"
		}
		counts[[2]string{lifecycle, config}]++
	}
	for _, lifecycle := range []string{"sync", "terminating", "terminated"} {
		for _, config := range []string{"desired", "orphan", "runtime_only"} {
			static := "true" // every source of this version makes static pods
			if config == "runtime_only" {
				static = "unknown"
			}
			ch <- prometheus.MustNewConstMetric(w.desc, prometheus.GaugeValue, counts[[2]string{lifecycle, config}], lifecycle, config, static)
		}
	}
}

// Runtime returns hooks that count sandboxes and containers. The Event hook is
// left to the caller.
func (m *Metrics) Runtime() podruntime.Hooks {
	pods := m.factory.counter("kubelet_started_pods_total", "Sandboxes that were created.").WithLabelValues()
	podErrors := m.factory.counter("kubelet_started_pods_errors_total", "Sandboxes that could not be created.").WithLabelValues()
	sandbox := m.factory.histogram("kubelet_run_podsandbox_duration_seconds", "How long creating a sandbox took.", prometheus.DefBuckets, "runtime_handler")
	sandboxErrors := m.factory.counter("kubelet_run_podsandbox_errors_total", "Sandboxes that could not be created, by handler.", "runtime_handler")
	started := m.factory.counter("kubelet_started_containers_total", "Attempts to start a container, by kind.", "container_type")
	volumes := m.factory.counter("kubelet_image_volume_requested_total", "Image volumes that a starting container mounts.").WithLabelValues()
	mounted := m.factory.counter("kubelet_image_volume_mounted_succeed_total", "Image volumes whose image was there.").WithLabelValues()
	notMounted := m.factory.counter("kubelet_image_volume_mounted_errors_total", "Image volumes whose image could not be had.").WithLabelValues()
	failed := m.factory.counter("kubelet_started_containers_errors_total", "Attempts to start a container that failed, by kind and reason.", "container_type", "code")
	return podruntime.Hooks{
		SandboxCreated: func(_ *corev1.Pod, handler string, took time.Duration, err error) {
			pods.Inc()
			sandbox.WithLabelValues(handler).Observe(took.Seconds())
			if err != nil {
				podErrors.Inc()
				sandboxErrors.WithLabelValues(handler).Inc()
			}
		},
		Starting: func(_ *corev1.Pod, kind podspec.Kind) { started.WithLabelValues(kind.String()).Inc() },
		StartFailed: func(_ *corev1.Pod, kind podspec.Kind, _, reason string) {
			failed.WithLabelValues(kind.String(), reason).Inc()
		},
		ImageVolume: func(_ *corev1.Pod, _, _ string, err error) {
			volumes.Inc()
			if err != nil {
				notMounted.Inc()
			} else {
				mounted.Inc()
			}
		},
	}
}

// Images returns hooks that measure image pulls. The Event hook is left to the
// caller.
func (m *Metrics) Images() imagepull.Hooks {
	took := m.factory.histogram("kubelet_image_pull_duration_seconds", "How long pulling an image took, by its size.",
		[]float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}, "image_size_in_bytes")
	asked := m.factory.counter("kubelet_image_manager_ensure_image_requests_total", "Times an image had to be present.", "pull_policy", "present_locally", "pull_required")
	return imagepull.Hooks{
		Pulled: func(_ string, d time.Duration, size uint64, err error) {
			if err == nil {
				took.WithLabelValues(sizeBucket(size)).Observe(d.Seconds())
			}
		},
		Ensured: func(policy corev1.PullPolicy, present, required string) {
			asked.WithLabelValues(strings.ToLower(string(policy)), present, required).Inc()
		},
	}
}

// sizeBucket is the kubelet's label for an image of so many bytes.
func sizeBucket(size uint64) string {
	const mb, gb = 1 << 20, 1 << 30
	if size == 0 {
		return "N/A"
	}
	for _, b := range []struct {
		upTo uint64
		name string
	}{
		{10 * mb, "0-10MB"}, {100 * mb, "10MB-100MB"}, {500 * mb, "100MB-500MB"}, {gb, "500MB-1GB"}, {5 * gb, "1GB-5GB"},
		{10 * gb, "5GB-10GB"}, {20 * gb, "10GB-20GB"}, {30 * gb, "20GB-30GB"}, {40 * gb, "30GB-40GB"}, {60 * gb, "40GB-60GB"}, {100 * gb, "60GB-100GB"},
	} {
		if size <= b.upTo {
			return b.name
		}
	}
	return "GT100GB"
}

// Status returns hooks that count containers that ended. The Changed hook is
// left to the caller.
func (m *Metrics) Status() status.Hooks {
	ended := m.factory.counter("kubelet_terminated_containers_total", "Containers that ended, by kind, exit code and reason.", "container_type", "exit_code", "reason")
	return status.Hooks{Terminated: func(_ *corev1.Pod, _ string, kind podspec.Kind, end corev1.ContainerStateTerminated) {
		ended.WithLabelValues(kind.String(), strconv.Itoa(int(end.ExitCode)), end.Reason).Inc()
	}}
}

// Desired counts what the node is asked to run.
type Desired struct{ desired, active prometheus.Gauge }

// Desired returns the gauges of desired and active pods.
func (m *Metrics) Desired() Desired {
	return Desired{
		m.factory.gauge("kubelet_desired_pods", "Pods the node is asked to run.", "static").WithLabelValues("true"),
		m.factory.gauge("kubelet_active_pods", "Pods that were admitted.", "static").WithLabelValues("true"),
	}
}

// Set takes the newest counts.
func (d Desired) Set(desired, active int) {
	d.desired.Set(float64(desired))
	d.active.Set(float64(active))
}

// Node returns counters of rare decisions about pods.
func (m *Metrics) Node() (rejected func(reason string), orphaned, restarted func()) {
	rejections := m.factory.counter("kubelet_admission_rejections_total", "Pods that were refused, by reason.", "reason")
	orphans := m.factory.counter("kubelet_orphaned_runtime_pods_total", "Pods found in the runtime that nobody wants.").WithLabelValues()
	restarts := m.factory.counter("kubelet_restarted_pods_total", "Pods of a UID that came back.", "static").WithLabelValues("true")
	return func(reason string) { rejections.WithLabelValues(reason).Inc() }, orphans.Inc, restarts.Inc
}

// factory makes metrics in one registry.
type factory struct{ registry *prometheus.Registry }

func (f factory) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	f.registry.MustRegister(v)
	return v
}

func (f factory) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	f.registry.MustRegister(v)
	return v
}

func (f factory) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	f.registry.MustRegister(v)
	return v
}
