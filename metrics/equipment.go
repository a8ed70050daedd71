package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/cgroup"
	"github.com/kubeletkit/kubeletkit/keyring"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/volume"
)

// Cgroups returns hooks that time changes of cgroups.
func (m *Metrics) Cgroups() cgroup.Hooks {
	took := m.factory.histogram("kubelet_cgroup_manager_duration_seconds", "How long changes of pods' cgroups took, by kind of change.",
		prometheus.DefBuckets, "operation_type")
	guaranteed := m.factory.gauge("kubelet_memory_qos_node_memory_min_bytes", "Memory that is kept for Guaranteed pods whatever happens.")
	burstable := m.factory.gauge("kubelet_memory_qos_node_memory_low_bytes", "Memory that is kept for Burstable pods if possible.")
	return cgroup.Hooks{
		Done: func(op string, d time.Duration, _ error) { took.WithLabelValues(op).Observe(d.Seconds()) },
		Reserved: func(g, b int64) {
			guaranteed.WithLabelValues().Set(float64(g))
			burstable.WithLabelValues().Set(float64(b))
		},
	}
}

// Lifecycle returns hooks that count hooks of containers that went another way
// than they were meant to. The Event hook is left to the caller.
func (m *Metrics) Lifecycle() lifecycle.Hooks {
	fell := m.factory.counter("kubelet_lifecycle_handler_http_fallbacks_total", "HTTPS hooks that plain HTTP answered.")
	cut := m.factory.counter("kubelet_sleep_action_terminated_early_total", "Sleep hooks that ended before their time.")
	return lifecycle.Hooks{
		FellBack: func(lifecycle.Call) { fell.WithLabelValues().Inc() },
		SleepCut: func(lifecycle.Call) { cut.WithLabelValues().Inc() },
	}
}

// Credentials returns hooks that time plug-ins for image credentials.
func (m *Metrics) Credentials() keyring.Hooks {
	failed := m.factory.counter("kubelet_credential_provider_plugin_errors_total", "Runs of plug-ins for image credentials that failed.", "plugin_name")
	took := m.factory.histogram("kubelet_credential_provider_plugin_duration", "How long runs of plug-ins for image credentials took, in seconds.",
		prometheus.DefBuckets, "plugin_name")
	return keyring.Hooks{Ran: func(plugin string, d time.Duration, err error) {
		took.WithLabelValues(plugin).Observe(d.Seconds())
		if err != nil {
			failed.WithLabelValues(plugin).Inc()
		}
	}}
}

// Volumes returns hooks that time the work on volumes. The Event hook is left to
// the caller.
func (m *Metrics) Volumes() volume.Hooks {
	took := m.factory.histogram("storage_operation_duration_seconds", "How long work on volumes took, by plug-in and kind of work.",
		[]float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}, "volume_plugin", "operation_name", "status", "migrated")
	observe := func(plugin, operation string, d time.Duration, err error) {
		status := "success"
		if err != nil {
			status = "fail-unknown"
		}
		took.WithLabelValues(plugin, operation, status, "false").Observe(d.Seconds())
	}
	return volume.Hooks{
		SetUp:    func(plugin string, d time.Duration, err error) { observe(plugin, "volume_mount", d, err) },
		TornDown: func(d time.Duration, err error) { observe("", "volume_unmount", d, err) },
	}
}
