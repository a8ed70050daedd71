package integration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// conditions are "Type=Status Reason" in the order in which they are reported.
func (s sight) conditions() []string {
	var all []string
	for _, c := range s.Pod.Status.Conditions {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason)))
	}
	return all
}

// addresses are those that the runtime gave the pod.
func (s sight) addresses(t *testing.T) []string {
	t.Helper()
	network := s.Sandbox(t).GetNetwork()
	all := []string{network.GetIp()}
	for _, more := range network.GetAdditionalIps() {
		all = append(all, more.GetIp())
	}
	return all
}

func podIPs(p corev1.Pod) []string {
	var all []string
	for _, ip := range p.Status.PodIPs {
		all = append(all, ip.IP)
	}
	return all
}

func hostIPs(p corev1.Pod) []string {
	var all []string
	for _, ip := range p.Status.HostIPs {
		all = append(all, ip.IP)
	}
	return all
}

func TestObserveTheStatus(t *testing.T) {
	const forever = "  containers: [{name: c, image: KK, args: [sleep, forever]}]\n"
	observe(t, Options{}, []observation{
		{
			name: "a pod that runs is ready in every way", spec: forever, until: runs,
			check: func(t *testing.T, s sight) {
				require.Equal(t, []string{
					"PodReadyToStartContainers=True", "Initialized=True", "Ready=True", "ContainersReady=True", "PodScheduled=True",
				}, s.conditions())
				for _, c := range s.Pod.Status.Conditions {
					require.False(t, c.LastTransitionTime.IsZero(), c.Type)
					require.False(t, c.LastTransitionTime.Before(s.Pod.Status.StartTime), c.Type)
				}
				require.Empty(t, s.Pod.Status.Reason)
				require.Empty(t, s.Pod.Status.Message)
			},
		},
		{
			name: "a container's status says what runs", spec: forever, until: runs,
			check: func(t *testing.T, s sight) {
				st, c := s.Status(t, "c"), s.Container(t, "c")
				require.Equal(t, "containerd://"+c.Id, st.ContainerID)
				require.Equal(t, c.ImageRef, st.ImageID)
				require.Contains(t, st.Image, "/kk:1")
				require.True(t, st.Ready)
				require.True(t, *st.Started)
				require.Zero(t, st.RestartCount)
				require.Equal(t, at(c.StartedAt).Unix(), st.State.Running.StartedAt.Unix())
				require.Equal(t, corev1.ContainerState{}, st.LastTerminationState)
			},
		},
		{
			name: "a pod that waits for an image has its sandbox and is not ready", until: waiting("c", "ErrImageNeverPull"),
			spec: "  containers: [{name: c, image: example.test/none:1, imagePullPolicy: Never}]\n",
			check: func(t *testing.T, s sight) {
				require.Equal(t, corev1.PodPending, s.Pod.Status.Phase)
				require.Equal(t, []string{
					"PodReadyToStartContainers=True", "Initialized=True", "Ready=False ContainersNotReady", "ContainersReady=False ContainersNotReady", "PodScheduled=True",
				}, s.conditions())
				require.Equal(t, "containers with unready status: [c]", s.condition(t, corev1.PodReady).Message)
				require.Equal(t, s.addresses(t), podIPs(s.Pod))
				require.Empty(t, s.Status(t, "c").ContainerID)
			},
		},
		{
			name: "a pod that waits for an object has no sandbox", until: func(p corev1.Pod) error {
				for _, c := range p.Status.Conditions {
					if c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionFalse {
						return nil
					}
				}
				return fmt.Errorf("conditions %v", p.Status.Conditions)
			},
			spec: "  volumes: [{name: v, secret: {secretName: nobody}}]\n  containers: [{name: c, image: KK, volumeMounts: [{name: v, mountPath: /v}]}]\n",
			check: func(t *testing.T, s sight) {
				require.Equal(t, "no pod sandbox exists", s.condition(t, corev1.PodReadyToStartContainers).Message)
				require.Equal(t, "PodSandboxNotReady", s.condition(t, corev1.PodReadyToStartContainers).Reason)
				require.Equal(t, "ContainerCreating", s.Status(t, "c").State.Waiting.Reason)
				require.Empty(t, s.Pod.Status.PodIP)
				require.Equal(t, corev1.PodPending, s.Pod.Status.Phase)
			},
		},
		{
			name: "a pod that initializes says with what", until: func(p corev1.Pod) error {
				for _, c := range p.Status.InitContainerStatuses {
					if c.Name == "j" && c.State.Running != nil {
						return nil
					}
				}
				return fmt.Errorf("j does not run: %s", states(p))
			},
			spec: "  initContainers:\n  - {name: i, image: KK, args: [exit, \"0\"]}\n  - {name: j, image: KK, args: [sleep, forever]}\n" + forever,
			check: func(t *testing.T, s sight) {
				require.Equal(t, corev1.PodPending, s.Pod.Status.Phase)
				require.Equal(t, "ContainersNotInitialized", s.condition(t, corev1.PodInitialized).Reason)
				require.Equal(t, "containers with incomplete status: [j]", s.condition(t, corev1.PodInitialized).Message)
				require.Equal(t, "PodInitializing", s.Status(t, "c").State.Waiting.Reason)
				require.True(t, s.Status(t, "i").Ready)
				require.False(t, s.Status(t, "j").Ready)
				require.True(t, *s.Status(t, "j").Started)
				require.Equal(t, "i", s.Pod.Status.InitContainerStatuses[0].Name)
			},
		},
		{
			name: "a pod that has succeeded is complete and not ready",
			spec: "  initContainers: [{name: i, image: KK, args: [exit, \"0\"]}]\n  containers: [{name: c, image: KK, args: [exit, \"0\"]}]\n",
			check: func(t *testing.T, s sight) {
				require.Equal(t, "PodCompleted", s.condition(t, corev1.PodInitialized).Reason)
				require.Equal(t, corev1.ConditionTrue, s.condition(t, corev1.PodInitialized).Status)
				for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
					require.Equal(t, corev1.ConditionFalse, s.condition(t, kind).Status)
					require.Equal(t, "PodCompleted", s.condition(t, kind).Reason)
				}
				require.False(t, s.Status(t, "c").Ready)
				require.False(t, *s.Status(t, "c").Started)
			},
		},
		{
			name: "a pod that has failed says so", until: inPhase(corev1.PodFailed),
			spec: "  containers: [{name: c, image: KK, args: [exit, \"1\"]}, {name: d, image: KK, args: [exit, \"0\"]}]\n",
			check: func(t *testing.T, s sight) {
				for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
					require.Equal(t, corev1.ConditionFalse, s.condition(t, kind).Status)
					require.Equal(t, "PodFailed", s.condition(t, kind).Reason)
				}
				require.EqualValues(t, 1, s.exitOf(t, "c").ExitCode)
				require.EqualValues(t, 0, s.exitOf(t, "d").ExitCode)
			},
		},
		{
			name: "a container that was started again has its last end beside its new state", until: restarted("c", 1),
			spec: "  restartPolicy: Always\n  volumes: [{name: v, emptyDir: {}}]\n  containers:\n" + with("c", `[first, "1", /v/f, "3", sleep, forever]`),
			check: func(t *testing.T, s sight) {
				st := s.Status(t, "c")
				require.EqualValues(t, 1, st.RestartCount)
				last := st.LastTerminationState.Terminated
				require.EqualValues(t, 3, last.ExitCode)
				require.NotEqual(t, st.ContainerID, last.ContainerID)
				require.False(t, st.State.Running.StartedAt.Before(&last.FinishedAt))
				require.EqualValues(t, 1, s.Container(t, "c").Metadata.Attempt)
				require.Equal(t, corev1.PodRunning, s.Pod.Status.Phase)
			},
		},
		{
			name: "the pod's addresses are the runtime's, and the host's are the node's", spec: forever, until: runs,
			check: func(t *testing.T, s sight) {
				require.Equal(t, s.addresses(t), podIPs(s.Pod))
				require.Equal(t, s.Pod.Status.PodIP, podIPs(s.Pod)[0])
				require.NotEmpty(t, s.Pod.Status.HostIP)
				require.Equal(t, s.Pod.Status.HostIP, hostIPs(s.Pod)[0])
			},
		},
		{
			name: "on the host's network the pod's addresses are the host's", until: runs,
			spec: "  hostNetwork: true\n" + forever,
			check: func(t *testing.T, s sight) {
				require.Equal(t, hostIPs(s.Pod), podIPs(s.Pod))
				require.Equal(t, s.Pod.Status.HostIP, s.Pod.Status.PodIP)
			},
		},
		{
			name: "a pod that has ended keeps its address and its times",
			spec: "  containers: [{name: c, image: KK, args: [exit, \"0\"]}]\n",
			check: func(t *testing.T, s sight) {
				require.NotEmpty(t, s.Pod.Status.PodIP)
				require.False(t, s.Pod.Status.StartTime.IsZero())
				end := s.exitOf(t, "c")
				require.False(t, end.StartedAt.Before(s.Pod.Status.StartTime))
				require.False(t, end.FinishedAt.Before(&end.StartedAt))
			},
		},
		{
			name: "the status has the user that the runtime gave the process", until: runs,
			spec: "  securityContext: {runAsUser: 1234, runAsGroup: 2345, supplementalGroups: [3456]}\n" + forever,
			check: func(t *testing.T, s sight) {
				user := s.Status(t, "c").User
				if strings.HasPrefix(the.daemon.Version(), "1.") {
					require.Nil(t, user, "this runtime does not tell, and nothing is made up")
					return
				}
				require.EqualValues(t, 1234, user.Linux.UID)
				require.EqualValues(t, 2345, user.Linux.GID)
				groups := slices.Sorted(slices.Values(user.Linux.SupplementalGroups))
				require.Equal(t, []int64{2345, 3456}, groups)
			},
		},
		{
			name: "the status has the resources that are in force, in the words of the manifest", until: runs,
			spec: "  containers: [{name: c, image: KK, args: [sleep, forever], resources: {requests: {cpu: 15m, memory: 10M}, limits: {cpu: 33m, memory: 20M}}}]\n",
			check: func(t *testing.T, s sight) {
				st := s.Status(t, "c")
				require.Equal(t, "15m", st.Resources.Requests.Cpu().String())
				require.Equal(t, "33m", st.Resources.Limits.Cpu().String())
				require.Equal(t, "10M", st.Resources.Requests.Memory().String())
				require.Equal(t, "20M", st.Resources.Limits.Memory().String())
				require.Equal(t, "15m", st.AllocatedResources.Cpu().String())
				require.Equal(t, "10M", st.AllocatedResources.Memory().String())
			},
		},
		{
			name: "the status has the pod's own resources", until: runs,
			spec: "  resources: {requests: {cpu: 15m, memory: 10Mi}, limits: {cpu: 33m, memory: 20Mi}}\n" + forever,
			check: func(t *testing.T, s sight) {
				require.NotNil(t, s.Pod.Status.Resources)
				require.Equal(t, "33m", s.Pod.Status.Resources.Limits.Cpu().String())
				require.Equal(t, "20Mi", s.Pod.Status.Resources.Limits.Memory().String())
				require.Equal(t, "15m", s.Pod.Status.AllocatedResources.Cpu().String())
				require.Equal(t, "10Mi", s.Pod.Status.AllocatedResources.Memory().String())
			},
		},
		{
			name: "the status says of each mount what became of it", until: runs,
			spec: "  volumes: [{name: v, emptyDir: {}}]\n  containers:\n  - name: c\n    image: KK\n    args: [sleep, forever]\n" +
				"    volumeMounts: [{name: v, mountPath: /rw}, {name: v, mountPath: /ro, readOnly: true}]\n",
			check: func(t *testing.T, s sight) {
				mounts := s.Status(t, "c").VolumeMounts
				require.Len(t, mounts, 2)
				require.Equal(t, corev1.VolumeMountStatus{Name: "v", MountPath: "/rw"}, mounts[0])
				require.Equal(t, "/ro", mounts[1].MountPath)
				require.True(t, mounts[1].ReadOnly)
				require.Equal(t, corev1.RecursiveReadOnlyDisabled, *mounts[1].RecursiveReadOnly)
			},
		},
		{
			name: "a readiness gate that nobody opens keeps the pod from being ready", until: runs,
			spec: "  readinessGates: [{conditionType: example.com/open}]\n" + forever,
			check: func(t *testing.T, s sight) {
				require.Equal(t, corev1.ConditionTrue, s.condition(t, corev1.ContainersReady).Status)
				ready := s.condition(t, corev1.PodReady)
				require.Equal(t, corev1.ConditionFalse, ready.Status)
				require.Equal(t, "ReadinessGatesNotReady", ready.Reason)
				require.Equal(t, `corresponding condition of pod readiness gate "example.com/open" does not exist.`, ready.Message)
			},
		},
		{
			name: "statuses come by name, those of init containers in their order", until: runs,
			spec: "  initContainers:\n  - {name: last, image: KK, args: [exit, \"0\"]}\n  - {name: first, image: KK, args: [sleep, forever], restartPolicy: Always}\n" +
				"  containers: [{name: d, image: KK, args: [sleep, forever]}, {name: c, image: KK, args: [sleep, forever]}]\n",
			check: func(t *testing.T, s sight) {
				st := s.Pod.Status
				require.Equal(t, []string{"last", "first"}, []string{st.InitContainerStatuses[0].Name, st.InitContainerStatuses[1].Name})
				require.Equal(t, []string{"c", "d"}, []string{st.ContainerStatuses[0].Name, st.ContainerStatuses[1].Name})
				require.True(t, st.InitContainerStatuses[0].Ready)
				require.True(t, st.InitContainerStatuses[1].Ready)
			},
		},
		{
			name: "a manifest has no generation, so none is observed",
			meta: "  generation: 7\n", spec: forever, until: runs,
			check: func(t *testing.T, s sight) {
				require.Zero(t, s.Pod.Generation)
				require.Zero(t, s.Pod.Status.ObservedGeneration)
				require.Zero(t, s.condition(t, corev1.PodReady).ObservedGeneration)
			},
		},
		{
			name: "a sandbox that dies is replaced, and the containers start again in it", until: runs,
			spec: "  restartPolicy: Always\n" + forever,
			check: func(t *testing.T, s sight) {
				old := s.Sandbox(t).Id
				_, err := the.daemon.Runtime().StopPodSandbox(look(t), &cri.StopPodSandboxRequest{PodSandboxId: old})
				require.NoError(t, err)
				Eventually(t, 20*time.Second, func() error {
					if s.Pod, err = s.agent.Pod(s.Name); err != nil {
						return err
					}
					return restarted("c", 1)(s.Pod)
				})
				require.NotEqual(t, old, s.Sandbox(t).Id)
				require.EqualValues(t, 1, s.Sandbox(t).Metadata.Attempt)
				require.Equal(t, s.addresses(t), podIPs(s.Pod))
				require.Equal(t, corev1.PodRunning, s.Pod.Status.Phase)
			},
		},
	})
}
