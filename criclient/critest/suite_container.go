package critest

import (
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

func containerPromises() []promise {
	return []promise{
		{"a container is created, runs, and exits", containerLife},
		{"the exit code is kept", containerExitCode},
		{"a container starts once", containerStartsOnce},
		{"stopping a container twice is no mistake", containerStop},
		{"stopping with timeout 0 kills", containerKill},
		{"stopping waits out the grace period and kills", containerStubborn},
		{"removing a running container kills it", containerRemoveRunning},
		{"one container and attempt exists once", containerReserved},
		{"containers are listed by state, sandbox, ID and label", containerLists},
		{"a container needs a ready sandbox", containerNeedsSandbox},
		{"a container needs its image", containerNeedsImage},
		{"an unknown container is NotFound", containerUnknown},
		{"stats of a running container only grow", containerStatsGrow},
		{"a command runs in a container", containerExec},
		{"a container shows its mounts", containerMounts},
		{"a container runs as the user that was asked for, if the runtime tells", containerUserAsked},
		{"the resources of a running container can be changed", containerResources},
	}
}

func containerLife(p *promiseTest) {
	pod := p.podConfig()
	sandbox := p.run(pod)
	id := p.create(sandbox, pod, p.Forever)
	st := p.container(id)
	equal(p, "state", st.GetState(), created)
	equal(p, "started at", st.GetStartedAt(), 0)
	equal(p, "finished at", st.GetFinishedAt(), 0)
	equal(p, "name", st.GetMetadata().GetName(), "app")
	equal(p, "label", st.GetLabels()[observed.LabelContainerName], "app")
	equal(p, "annotation", st.GetAnnotations()[observed.AnnotationRestartCount], "0")

	p.ok(p.Runtime.StartContainer(p.ctx, id), "StartContainer")
	st = p.container(id)
	equal(p, "state", st.GetState(), running)
	if st.GetStartedAt() < st.GetCreatedAt() {
		p.Errorf("started at %d, before it was created at %d", st.GetStartedAt(), st.GetCreatedAt())
	}
	equal(p, "finished at", st.GetFinishedAt(), 0)

	p.ok(p.Runtime.StopContainer(p.ctx, id, 5), "StopContainer")
	st = p.becomes(id, exited)
	if st.GetFinishedAt() < st.GetStartedAt() {
		p.Errorf("finished at %d, before it was started at %d", st.GetFinishedAt(), st.GetStartedAt())
	}
	p.ok(p.Runtime.RemoveContainer(p.ctx, id), "RemoveContainer")
	if _, err := p.Runtime.ContainerStatus(p.ctx, id, false); !p.IsNotFound(err) {
		p.Errorf("ContainerStatus = %v, want NotFound", err)
	}
	p.ok(p.Runtime.RemoveContainer(p.ctx, id), "RemoveContainer again")
	equal(p, "sandbox state", p.sandbox(sandbox).GetState(), ready)
}

func containerExitCode(p *promiseTest) {
	_, _, id := p.started(p.Exit3)
	st := p.becomes(id, exited)
	equal(p, "exit code", st.GetExitCode(), 3)
	equal(p, "reason", st.GetReason(), "Error")
	// Which is later is no promise here: containerd 2.4 takes the time of the start
	// after it has started the process, and this one ends at once.
	if st.GetStartedAt() == 0 || st.GetFinishedAt() == 0 {
		p.Errorf("started at %d, finished at %d, want both", st.GetStartedAt(), st.GetFinishedAt())
	}
}

func containerStartsOnce(p *promiseTest) {
	_, _, id := p.started(p.Forever)
	if p.Runtime.StartContainer(p.ctx, id) == nil {
		p.Error("a running container was started again")
	}
	equal(p, "state", p.container(id).GetState(), running)
	p.ok(p.Runtime.StopContainer(p.ctx, id, 0), "StopContainer")
	p.becomes(id, exited)
	if p.Runtime.StartContainer(p.ctx, id) == nil {
		p.Error("an exited container was started again")
	}
}

func containerStop(p *promiseTest) {
	pod, sandbox, id := p.started(p.Forever)
	p.ok(p.Runtime.StopContainer(p.ctx, id, 5), "StopContainer")
	first := p.becomes(id, exited)
	p.ok(p.Runtime.StopContainer(p.ctx, id, 5), "StopContainer again")
	second := p.container(id)
	equal(p, "exit code after the second stop", second.GetExitCode(), first.GetExitCode())
	equal(p, "finished at after the second stop", second.GetFinishedAt(), first.GetFinishedAt())

	cfg := p.containerConfig(pod, p.Forever)
	cfg.Metadata.Attempt = 1
	fresh, err := p.Runtime.CreateContainer(p.ctx, sandbox, cfg, pod)
	p.ok(err, "CreateContainer")
	p.ok(p.Runtime.StopContainer(p.ctx, fresh, 5), "StopContainer of one that was never started")
	if err := p.Runtime.StopContainer(p.ctx, missingID, 5); err != nil && !p.IsNotFound(err) {
		p.Errorf("StopContainer of an unknown one = %v, want success or NotFound", err)
	}
}

func containerKill(p *promiseTest) {
	_, _, id := p.started(p.Forever)
	p.ok(p.Runtime.StopContainer(p.ctx, id, 0), "StopContainer")
	equal(p, "exit code", p.becomes(id, exited).GetExitCode(), codeKILL)
}

func containerStubborn(p *promiseTest) {
	if p.Stubborn.Image == "" {
		return // the target has no program that ignores TERM
	}
	_, _, id := p.started(p.Stubborn)
	began := time.Now()
	p.ok(p.Runtime.StopContainer(p.ctx, id, 1), "StopContainer")
	if took := time.Since(began); took < time.Second {
		p.Errorf("StopContainer took %v, less than the grace period", took)
	}
	st := p.becomes(id, exited)
	equal(p, "exit code", st.GetExitCode(), codeKILL)
	equal(p, "reason", st.GetReason(), "Error")
}

func containerRemoveRunning(p *promiseTest) {
	_, _, id := p.started(p.Forever)
	p.ok(p.Runtime.RemoveContainer(p.ctx, id), "RemoveContainer")
	if _, err := p.Runtime.ContainerStatus(p.ctx, id, false); !p.IsNotFound(err) {
		p.Errorf("ContainerStatus = %v, want NotFound", err)
	}
}

func containerReserved(p *promiseTest) {
	pod := p.podConfig()
	sandbox := p.run(pod)
	first := p.create(sandbox, pod, p.Forever)
	cfg := p.containerConfig(pod, p.Forever)
	if id, err := p.Runtime.CreateContainer(p.ctx, sandbox, cfg, pod); err == nil {
		p.Fatalf("a second container %s was made beside %s", id, first)
	}
	cfg.Metadata.Attempt = 1
	second, err := p.Runtime.CreateContainer(p.ctx, sandbox, cfg, pod)
	p.ok(err, "CreateContainer of the next attempt")
	equal(p, "attempt", p.container(second).GetMetadata().GetAttempt(), 1)
	p.ok(p.Runtime.RemoveContainer(p.ctx, first), "RemoveContainer")
	p.create(sandbox, pod, p.Forever) // the name is free again
}

func containerLists(p *promiseTest) {
	pod, sandbox, up := p.started(p.Forever)
	_, other, down := p.started(p.Exit3)
	p.becomes(down, exited)
	is := func(s runtimeapi.ContainerState) *runtimeapi.ContainerStateValue {
		return &runtimeapi.ContainerStateValue{State: s}
	}
	label := map[string]string{observed.LabelPodUID: pod.GetMetadata().GetUid()}
	tests := []struct {
		name     string
		filter   *runtimeapi.ContainerFilter
		up, down bool
	}{
		{"no filter", nil, true, true},
		{"running", &runtimeapi.ContainerFilter{State: is(running)}, true, false},
		{"exited", &runtimeapi.ContainerFilter{State: is(exited)}, false, true},
		{"created", &runtimeapi.ContainerFilter{State: is(created)}, false, false},
		{"sandbox", &runtimeapi.ContainerFilter{PodSandboxId: other}, false, true},
		{"sandbox and state", &runtimeapi.ContainerFilter{PodSandboxId: other, State: is(running)}, false, false},
		{"sandbox that is not there", &runtimeapi.ContainerFilter{PodSandboxId: missingID}, false, false},
		{"ID", &runtimeapi.ContainerFilter{Id: up}, true, false},
		{"ID and another sandbox", &runtimeapi.ContainerFilter{Id: up, PodSandboxId: other}, false, false},
		{"label", &runtimeapi.ContainerFilter{LabelSelector: label}, true, false},
		{"label and state", &runtimeapi.ContainerFilter{LabelSelector: label, State: is(exited)}, false, false},
	}
	for _, tt := range tests {
		list, err := p.Runtime.ListContainers(p.ctx, tt.filter)
		p.ok(err, "ListContainers")
		has := func(id string) bool {
			return slices.ContainsFunc(list, func(c *runtimeapi.Container) bool { return c.GetId() == id })
		}
		equal(p, tt.name+": the running one is listed", has(up), tt.up)
		equal(p, tt.name+": the exited one is listed", has(down), tt.down)
	}
	list, err := p.Runtime.ListContainers(p.ctx, &runtimeapi.ContainerFilter{Id: up})
	p.ok(err, "ListContainers")
	if len(list) == 1 {
		equal(p, "listed sandbox", list[0].GetPodSandboxId(), sandbox)
		equal(p, "listed state", list[0].GetState(), running)
		equal(p, "listed creation time", list[0].GetCreatedAt(), p.container(up).GetCreatedAt())
	}
}

func containerNeedsSandbox(p *promiseTest) {
	pod := p.podConfig()
	if _, err := p.Runtime.CreateContainer(p.ctx, missingID, p.containerConfig(pod, p.Forever), pod); !p.IsNotFound(err) {
		p.Errorf("CreateContainer in an unknown sandbox = %v, want NotFound", err)
	}
	sandbox := p.run(pod)
	p.ok(p.Runtime.StopPodSandbox(p.ctx, sandbox), "StopPodSandbox")
	if id, err := p.Runtime.CreateContainer(p.ctx, sandbox, p.containerConfig(pod, p.Forever), pod); err == nil {
		p.Errorf("container %s was made in a stopped sandbox", id)
	}
}

func containerNeedsImage(p *promiseTest) {
	pod := p.podConfig()
	sandbox := p.run(pod)
	for _, image := range []string{"localhost/critest/no-such-image:1", "sha256:" + missingID} {
		if id, err := p.Runtime.CreateContainer(p.ctx, sandbox, p.containerConfig(pod, Program{Image: image}), pod); err == nil {
			p.Errorf("container %s was made from image %s, which is not there", id, image)
		}
	}
	p.create(sandbox, pod, p.Forever) // the failure has not kept the name
}

func containerUnknown(p *promiseTest) {
	if _, err := p.Runtime.ContainerStatus(p.ctx, missingID, false); !p.IsNotFound(err) {
		p.Errorf("ContainerStatus = %v, want NotFound", err)
	}
	if err := p.Runtime.StartContainer(p.ctx, missingID); !p.IsNotFound(err) {
		p.Errorf("StartContainer = %v, want NotFound", err)
	}
	p.ok(p.Runtime.RemoveContainer(p.ctx, missingID), "RemoveContainer")
}

func containerStatsGrow(p *promiseTest) {
	_, _, id := p.started(p.Forever)
	var last uint64
	for range 2 {
		p.eventually(func() error {
			s, err := p.Runtime.ContainerStats(p.ctx, id)
			if err != nil {
				return err
			}
			equal(p, "ID", s.GetAttributes().GetId(), id)
			used := s.GetCpu().GetUsageCoreNanoSeconds().GetValue()
			if used < last {
				p.Errorf("CPU time went back from %d to %d", last, used)
			}
			last = used
			return nil
		})
	}
}

func containerExec(p *promiseTest) {
	_, _, id := p.started(p.Forever)
	if len(p.True) > 0 {
		_, _, err := p.Runtime.ExecSync(p.ctx, id, p.True, 10*time.Second)
		p.ok(err, "ExecSync")
	}
	p.ok(p.Runtime.StopContainer(p.ctx, id, 0), "StopContainer")
	if _, _, err := p.Runtime.ExecSync(p.ctx, id, []string{"/any"}, time.Second); err == nil {
		p.Error("a command ran in a container that has exited")
	}
}

func containerMounts(p *promiseTest) {
	pod := p.podConfig()
	sandbox := p.run(pod)
	cfg := p.containerConfig(pod, p.Forever)
	dir := p.TempDir()
	cfg.Mounts = []*runtimeapi.Mount{{ContainerPath: "/critest-a", HostPath: dir}, {ContainerPath: "/critest-b", HostPath: dir, Readonly: true}}
	id, err := p.Runtime.CreateContainer(p.ctx, sandbox, cfg, pod)
	p.ok(err, "CreateContainer")
	p.ok(p.Runtime.StartContainer(p.ctx, id), "StartContainer")
	for _, want := range cfg.Mounts {
		i := slices.IndexFunc(p.container(id).GetMounts(), func(m *runtimeapi.Mount) bool { return m.GetContainerPath() == want.GetContainerPath() })
		if i < 0 {
			p.Errorf("mount %s is not shown", want.GetContainerPath())
			continue
		}
		got := p.container(id).GetMounts()[i]
		equal(p, "host path", got.GetHostPath(), dir)
		equal(p, "read-only", got.GetReadonly(), want.GetReadonly())
	}
}

func containerUserAsked(p *promiseTest) {
	pod := p.podConfig()
	sandbox := p.run(pod)
	cfg := p.containerConfig(pod, p.Forever)
	cfg.Linux.SecurityContext = &runtimeapi.LinuxContainerSecurityContext{
		RunAsUser: &runtimeapi.Int64Value{Value: 65534}, RunAsGroup: &runtimeapi.Int64Value{Value: 65533}, SupplementalGroups: []int64{12345},
	}
	id, err := p.Runtime.CreateContainer(p.ctx, sandbox, cfg, pod)
	p.ok(err, "CreateContainer")
	p.ok(p.Runtime.StartContainer(p.ctx, id), "StartContainer")
	if user := p.container(id).GetUser().GetLinux(); user != nil {
		equal(p, "user", user.GetUid(), 65534)
		equal(p, "group", user.GetGid(), 65533)
		equal(p, "has the supplemental group", slices.Contains(user.GetSupplementalGroups(), 12345), true)
	}
}

func containerResources(p *promiseTest) {
	pod := p.podConfig()
	sandbox := p.run(pod)
	cfg := p.containerConfig(pod, p.Forever)
	cfg.Linux.Resources = &runtimeapi.LinuxContainerResources{CpuShares: 512, MemoryLimitInBytes: 64 << 20}
	id, err := p.Runtime.CreateContainer(p.ctx, sandbox, cfg, pod)
	p.ok(err, "CreateContainer")
	p.ok(p.Runtime.StartContainer(p.ctx, id), "StartContainer")
	update := &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpuShares: 256, MemoryLimitInBytes: 128 << 20}}
	p.ok(p.Runtime.UpdateContainerResources(p.ctx, id, update), "UpdateContainerResources")
	if res := p.container(id).GetResources().GetLinux(); res != nil {
		equal(p, "CPU shares", res.GetCpuShares(), 256)
		equal(p, "memory limit", res.GetMemoryLimitInBytes(), 128<<20)
	}
	equal(p, "state", p.container(id).GetState(), running)
	p.ok(p.Runtime.RemoveContainer(p.ctx, id), "RemoveContainer")
	if p.Runtime.UpdateContainerResources(p.ctx, id, update) == nil {
		p.Error("the resources of a container that is gone were changed")
	}
}
