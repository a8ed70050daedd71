package metrics_test

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/allocation"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/metrics"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
	"github.com/kubeletkit/kubeletkit/podworkers"
)

// everything uses each hook once.
func everything(m *metrics.Metrics) {
	cri := m.CRI()
	cri.Called("RunPodSandbox", time.Second, nil)
	cri.Called("ListContainers", time.Second, errors.New("no"))
	p := m.PLEG()
	p.Relisted(time.Millisecond, 2, nil)
	p.Relisted(time.Millisecond, 2, errors.New("no"))
	p.Running(2, 3)
	p.Inspected("u", time.Millisecond, nil)
	p.Unannounced("u")
	p.StreamConnected()
	p.StreamEnded(nil)
	w := m.Workers(func() map[observed.UID]podworkers.State {
		return map[observed.UID]podworkers.State{
			"a": {Phase: podworkers.Syncing}, "b": {Phase: podworkers.Stopping, Deleted: true},
			"c": {Phase: podworkers.Stopping, RuntimeOnly: true, Deleted: true}, "d": {Phase: podworkers.Finished},
		}
	})
	w.Started(&corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, 3)}}, time.Second)
	w.Synced(podworkers.Round{Op: "sync", Took: time.Second})
	r := m.Runtime()
	r.SandboxCreated(nil, "", time.Second, nil)
	r.SandboxCreated(nil, "", time.Second, errors.New("no"))
	r.Starting(nil, podspec.Regular)
	r.StartFailed(nil, podspec.Regular, "app", "ErrImagePull")
	i := m.Images()
	i.Pulled("x", time.Second, 50<<20, nil)
	i.Pulled("x", time.Second, 0, errors.New("no"))
	i.Ensured(corev1.PullIfNotPresent, "true", "false")
	m.Status().Terminated(nil, "app", podspec.Init, corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"})
	m.Desired().Set(5, 4)
	r.ImageVolume(nil, "app", "v", nil)
	r.ImageVolume(nil, "app", "v", errors.New("no"))
	boxes := m.Cgroups()
	boxes.Done("create", time.Millisecond, nil)
	boxes.Reserved(1, 2)
	hooks := m.Lifecycle()
	hooks.FellBack(lifecycle.Call{})
	hooks.SleepCut(lifecycle.Call{})
	m.Credentials().Ran("vault", time.Second, errors.New("no"))
	volumes := m.Volumes()
	volumes.SetUp("kubernetes.io/secret", time.Millisecond, nil)
	volumes.TornDown(time.Millisecond, errors.New("no"))
	resizes := m.Allocations(func() (map[allocation.Outcome]int, int) { return map[allocation.Outcome]int{allocation.Deferred: 2}, 1 })
	resizes.Requested(nil, "cpu", "limits", "increase")
	resizes.Decided(allocation.Decision{Outcome: allocation.Infeasible, Reason: "swap_limitation"})
	resizes.Decided(allocation.Decision{Outcome: allocation.Accepted, WasDeferred: true, Waited: time.Second})
	resizes.Ended(nil, time.Second, nil)
	rejected, orphaned, restarted := m.Node()
	rejected("OutOfpods")
	orphaned()
	restarted()
}

func TestHooksCountUnderTheKubeletsNames(t *testing.T) {
	m := metrics.New("node-1")
	everything(m)
	const want = `
# HELP kubelet_active_pods Pods that were admitted.
# TYPE kubelet_active_pods gauge
kubelet_active_pods{static="true"} 4
# HELP kubelet_admission_rejections_total Pods that were refused, by reason.
# TYPE kubelet_admission_rejections_total counter
kubelet_admission_rejections_total{reason="OutOfpods"} 1
# HELP kubelet_credential_provider_plugin_errors_total Runs of plug-ins for image credentials that failed.
# TYPE kubelet_credential_provider_plugin_errors_total counter
kubelet_credential_provider_plugin_errors_total{plugin_name="vault"} 1
# HELP kubelet_image_volume_mounted_errors_total Image volumes whose image could not be had.
# TYPE kubelet_image_volume_mounted_errors_total counter
kubelet_image_volume_mounted_errors_total 1
# HELP kubelet_image_volume_requested_total Image volumes that a starting container mounts.
# TYPE kubelet_image_volume_requested_total counter
kubelet_image_volume_requested_total 2
# HELP kubelet_memory_qos_node_memory_low_bytes Memory that is kept for Burstable pods if possible.
# TYPE kubelet_memory_qos_node_memory_low_bytes gauge
kubelet_memory_qos_node_memory_low_bytes 2
# HELP kubelet_node_name The node's name. The count is always 1.
# TYPE kubelet_node_name gauge
kubelet_node_name{node="node-1"} 1
# HELP kubelet_pod_in_progress_resizes Resizes that were granted and are not in force.
# TYPE kubelet_pod_in_progress_resizes gauge
kubelet_pod_in_progress_resizes 1
# HELP kubelet_pod_infeasible_resizes_total Resizes that this node can never grant.
# TYPE kubelet_pod_infeasible_resizes_total counter
kubelet_pod_infeasible_resizes_total{reason_detail="swap_limitation"} 1
# HELP kubelet_pod_pending_resizes Resizes that wait, by the last answer.
# TYPE kubelet_pod_pending_resizes gauge
kubelet_pod_pending_resizes{reason="deferred"} 2
kubelet_pod_pending_resizes{reason="infeasible"} 0
# HELP kubelet_running_containers Containers by state.
# TYPE kubelet_running_containers gauge
kubelet_running_containers{container_state="running"} 3
# HELP kubelet_runtime_operations_errors_total Calls to the container runtime that failed, by type.
# TYPE kubelet_runtime_operations_errors_total counter
kubelet_runtime_operations_errors_total{operation_type="list_containers"} 1
# HELP kubelet_runtime_operations_total Calls to the container runtime, by type.
# TYPE kubelet_runtime_operations_total counter
kubelet_runtime_operations_total{operation_type="list_containers"} 1
kubelet_runtime_operations_total{operation_type="run_podsandbox"} 1
# HELP kubelet_started_containers_errors_total Attempts to start a container that failed, by kind and reason.
# TYPE kubelet_started_containers_errors_total counter
kubelet_started_containers_errors_total{code="ErrImagePull",container_type="container"} 1
# HELP kubelet_terminated_containers_total Containers that ended, by kind, exit code and reason.
# TYPE kubelet_terminated_containers_total counter
kubelet_terminated_containers_total{container_type="init_container",exit_code="3",reason="Error"} 1
# HELP kubelet_working_pods Pods the workers know, by where they are in their life and by who wants them.
# TYPE kubelet_working_pods gauge
kubelet_working_pods{config="desired",lifecycle="sync",static="true"} 1
kubelet_working_pods{config="desired",lifecycle="terminated",static="true"} 1
kubelet_working_pods{config="desired",lifecycle="terminating",static="true"} 0
kubelet_working_pods{config="orphan",lifecycle="sync",static="true"} 0
kubelet_working_pods{config="orphan",lifecycle="terminated",static="true"} 0
kubelet_working_pods{config="orphan",lifecycle="terminating",static="true"} 1
kubelet_working_pods{config="runtime_only",lifecycle="sync",static="unknown"} 0
kubelet_working_pods{config="runtime_only",lifecycle="terminated",static="unknown"} 0
kubelet_working_pods{config="runtime_only",lifecycle="terminating",static="unknown"} 1
`
	err := testutil.GatherAndCompare(m.Registry(), strings.NewReader(want),
		"kubelet_active_pods", "kubelet_admission_rejections_total", "kubelet_credential_provider_plugin_errors_total",
		"kubelet_image_volume_mounted_errors_total", "kubelet_image_volume_requested_total", "kubelet_memory_qos_node_memory_low_bytes", "kubelet_node_name", "kubelet_pod_in_progress_resizes", "kubelet_pod_infeasible_resizes_total", "kubelet_pod_pending_resizes", "kubelet_running_containers",
		"kubelet_runtime_operations_errors_total", "kubelet_runtime_operations_total", "kubelet_started_containers_errors_total",
		"kubelet_terminated_containers_total", "kubelet_working_pods")
	if err != nil {
		t.Error(err)
	}
}

func TestNothingIsServedThatTheLinterComplainsAboutBeyondTheKubeletsOwnNames(t *testing.T) {
	m := metrics.New("node-1")
	everything(m)
	problems, err := testutil.GatherAndLint(m.Registry())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		// The kubelet's names are older than the rules.
		if strings.HasPrefix(p.Metric, "kubelet_pleg_discard_events") || strings.HasPrefix(p.Metric, "kubelet_evented_pleg_connection_") ||
			p.Metric == "kubelet_pod_resize_duration_milliseconds" {
			continue
		}
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestOperationTypesAreTheKubelets(t *testing.T) {
	m := metrics.New("n")
	cri := m.CRI()
	for method, want := range map[string]string{
		"Version": "version", "Status": "status", "RuntimeConfig": "runtime_config", "UpdateRuntimeConfig": "update_runtime_config",
		"CreateContainer": "create_container", "ContainerStatus": "container_status", "UpdateContainerResources": "update_container",
		"ReopenContainerLog": "reopen_container_log", "ExecSync": "exec_sync", "PortForward": "port_forward",
		"StopPodSandbox": "stop_podsandbox", "PodSandboxStatus": "podsandbox_status", "ListPodSandbox": "list_podsandbox",
		"UpdatePodSandboxResources": "update_podsandbox_resources", "ListContainerStats": "list_container_stats",
		"ListPodSandboxStats": "list_podsandbox_stats", "PullImage": "pull_image", "ImageFsInfo": "image_fs_info",
		"CheckpointContainer": "checkpoint_container", "GetContainerEvents": "get_container_events",
		"ListMetricDescriptors": "list_metric_descriptors", "ListPodSandboxMetrics": "list_podsandbox_metrics",
	} {
		cri.Called(method, 0, nil)
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		if line := fmt.Sprintf("kubelet_runtime_operations_total{operation_type=%q} 1", want); !strings.Contains(w.Body.String(), line) {
			t.Errorf("%s: no line %s", method, line)
		}
	}
}

func ExampleNew() {
	m := metrics.New("node-1")
	hooks := m.CRI() // goes into criclient.Config
	hooks.Called("PullImage", 3*time.Second, nil)

	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "kubelet_runtime_operations_total") {
			fmt.Print(line)
		}
	}
	// Output: kubelet_runtime_operations_total{operation_type="pull_image"} 1
}
