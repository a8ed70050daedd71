package metrics

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/allocation"
)

// Allocations returns hooks that count resizes. counts is asked when somebody
// scrapes: how many wait, by the last answer, and how many are under way. The Event
// hook is left to the caller.
func (m *Metrics) Allocations(counts func() (waiting map[allocation.Outcome]int, inProgress int)) allocation.Hooks {
	asked := m.factory.counter("kubelet_container_requested_resizes_total", "Amounts that pods asked to have changed.", "resource", "requirement", "operation")
	took := m.factory.histogram("kubelet_pod_resize_duration_milliseconds", "How long a granted resize took until it was in force, or failed.",
		[]float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000}, "success")
	infeasible := m.factory.counter("kubelet_pod_infeasible_resizes_total", "Resizes that this node can never grant.", "reason_detail")
	waited := m.factory.histogram("kubelet_pod_deferred_resize_duration_seconds", "How long a resize that was deferred has waited, by what became of it.",
		[]float64{5, 10, 15, 20, 30, 45, 60, 90, 120, 150, 180, 300, 600, 1200, 1800, 3600}, "resolution")
	m.registry.MustRegister(
		waitingResizes{prometheus.NewDesc("kubelet_pod_pending_resizes", "Resizes that wait, by the last answer.", []string{"reason"}, nil), counts},
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kubelet_pod_in_progress_resizes", Help: "Resizes that were granted and are not in force."}, func() float64 {
			_, n := counts()
			return float64(n)
		}))
	return allocation.Hooks{
		Requested: func(_ *corev1.Pod, resource, requirement, operation string) {
			asked.WithLabelValues(resource, requirement, operation).Inc()
		},
		Decided: func(d allocation.Decision) {
			switch {
			case d.Outcome == allocation.Infeasible:
				infeasible.WithLabelValues(d.Reason).Inc()
			case d.WasDeferred && d.Outcome != allocation.Deferred:
				waited.WithLabelValues(strings.ToLower(string(d.Outcome))).Observe(d.Waited.Seconds())
			}
		},
		Ended: func(_ *corev1.Pod, d time.Duration, err error) {
			took.WithLabelValues(strconv.FormatBool(err == nil)).Observe(float64(d.Milliseconds()))
		},
	}
}

// waitingResizes counts them when it is asked.
type waitingResizes struct {
	desc   *prometheus.Desc
	counts func() (map[allocation.Outcome]int, int)
}

func (w waitingResizes) Describe(ch chan<- *prometheus.Desc) { ch <- w.desc }

func (w waitingResizes) Collect(ch chan<- prometheus.Metric) {
	waiting, _ := w.counts()
	for _, o := range []allocation.Outcome{allocation.Deferred, allocation.Infeasible} {
		ch <- prometheus.MustNewConstMetric(w.desc, prometheus.GaugeValue, float64(waiting[o]), strings.ToLower(string(o)))
	}
}
