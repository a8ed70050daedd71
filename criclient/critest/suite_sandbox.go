package critest

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

func runtimePromises() []promise {
	return []promise{
		{"it speaks CRI v1 and says who it is", func(p *promiseTest) {
			v, err := p.Runtime.Version(p.ctx, "")
			p.ok(err, "Version")
			equal(p, "RuntimeApiVersion", v.GetRuntimeApiVersion(), "v1")
			if v.GetRuntimeName() == "" || v.GetRuntimeVersion() == "" {
				p.Errorf("Version = %v, want a name and a version", v)
			}
		}},
		{"runtime and network are ready", func(p *promiseTest) {
			resp, err := p.Runtime.Status(p.ctx, false)
			p.ok(err, "Status")
			for _, want := range []string{runtimeapi.RuntimeReady, runtimeapi.NetworkReady} {
				i := slices.IndexFunc(resp.GetStatus().GetConditions(), func(c *runtimeapi.RuntimeCondition) bool { return c.GetType() == want })
				if i < 0 || !resp.GetStatus().GetConditions()[i].GetStatus() {
					p.Errorf("condition %s is not true in %v", want, resp.GetStatus())
				}
			}
		}},
		{"the default handler is among those the runtime tells of, if any", func(p *promiseTest) {
			resp, err := p.Runtime.Status(p.ctx, false)
			p.ok(err, "Status")
			names := map[string]bool{}
			for _, h := range resp.GetRuntimeHandlers() {
				if names[h.GetName()] {
					p.Errorf("handler %q is told of twice", h.GetName())
				}
				names[h.GetName()] = true
			}
			if len(names) > 0 && !names[""] {
				p.Errorf("handlers %v, want the default one among them", names)
			}
		}},
		{"the cgroup driver is known or the question is unimplemented", func(p *promiseTest) {
			resp, err := p.Runtime.RuntimeConfig(p.ctx)
			if err != nil && !p.IsUnimplemented(err) {
				p.Errorf("RuntimeConfig: %v", err)
			}
			if err == nil && resp.GetLinux() == nil {
				p.Errorf("RuntimeConfig = %v, want a Linux part", resp)
			}
		}},
	}
}

func sandboxPromises() []promise {
	return []promise{
		{"a sandbox is ready when RunPodSandbox returns", sandboxReady},
		{"a sandbox on the host network has no address", sandboxOnHost},
		{"sandboxes are listed by state, ID and label", sandboxLists},
		{"one pod and attempt has one sandbox", sandboxReserved},
		{"stopping a sandbox twice is no mistake", sandboxStop},
		{"removing a sandbox twice is no mistake", sandboxRemove},
		{"removing a sandbox removes its running containers", sandboxRemoveRunning},
		{"an unknown sandbox is NotFound", func(p *promiseTest) {
			if _, err := p.Runtime.PodSandboxStatus(p.ctx, missingID, false); !p.IsNotFound(err) {
				p.Errorf("PodSandboxStatus = %v, want NotFound", err)
			}
			if err := p.Runtime.StopPodSandbox(p.ctx, missingID); err != nil && !p.IsNotFound(err) {
				p.Errorf("StopPodSandbox = %v, want success or NotFound", err)
			}
			p.ok(p.Runtime.RemovePodSandbox(p.ctx, missingID), "RemovePodSandbox")
		}},
		{"pods can be made at the same time", sandboxesAtOnce},
	}
}

// missingID looks like an ID and is none.
const missingID = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func sandboxReady(p *promiseTest) {
	pod := p.podConfig()
	before := time.Now()
	id := p.run(pod)
	st := p.sandbox(id)
	equal(p, "state", st.GetState(), ready)
	equal(p, "ID", st.GetId(), id)
	equal(p, "name", st.GetMetadata().GetName(), pod.GetMetadata().GetName())
	equal(p, "namespace", st.GetMetadata().GetNamespace(), p.Namespace)
	equal(p, "UID", st.GetMetadata().GetUid(), pod.GetMetadata().GetUid())
	equal(p, "label", st.GetLabels()[observed.LabelPodUID], pod.GetMetadata().GetUid())
	equal(p, "annotation", st.GetAnnotations()["critest/annotation"], "kept")
	if at := time.Unix(0, st.GetCreatedAt()); at.Before(before) || at.After(time.Now()) {
		p.Errorf("created at %v, want between %v and now", at, before)
	}
	if _, err := netip.ParseAddr(st.GetNetwork().GetIp()); err != nil {
		p.Errorf("address: %v", err)
	}
}

func sandboxOnHost(p *promiseTest) {
	pod := p.podConfig()
	pod.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
	}
	pod.Hostname = ""
	st := p.sandbox(p.run(pod))
	equal(p, "state", st.GetState(), ready)
	equal(p, "address", st.GetNetwork().GetIp(), "")
	equal(p, "network mode", st.GetLinux().GetNamespaces().GetOptions().GetNetwork(), runtimeapi.NamespaceMode_NODE)
}

func sandboxLists(p *promiseTest) {
	pods := []*runtimeapi.PodSandboxConfig{p.podConfig(), p.podConfig()}
	up, down := p.run(pods[0]), p.run(pods[1])
	p.ok(p.Runtime.StopPodSandbox(p.ctx, down), "StopPodSandbox")
	is := func(s runtimeapi.PodSandboxState) *runtimeapi.PodSandboxStateValue {
		return &runtimeapi.PodSandboxStateValue{State: s}
	}
	label := func(i int) map[string]string {
		return map[string]string{observed.LabelPodUID: pods[i].GetMetadata().GetUid()}
	}
	tests := []struct {
		name     string
		filter   *runtimeapi.PodSandboxFilter
		up, down bool
	}{
		{"no filter", nil, true, true},
		{"empty filter", &runtimeapi.PodSandboxFilter{}, true, true},
		{"ready", &runtimeapi.PodSandboxFilter{State: is(ready)}, true, false},
		{"not ready", &runtimeapi.PodSandboxFilter{State: is(notReady)}, false, true},
		{"ID", &runtimeapi.PodSandboxFilter{Id: up}, true, false},
		{"ID of another state", &runtimeapi.PodSandboxFilter{Id: up, State: is(notReady)}, false, false},
		{"label", &runtimeapi.PodSandboxFilter{LabelSelector: label(1)}, false, true},
		{"label and state", &runtimeapi.PodSandboxFilter{LabelSelector: label(1), State: is(ready)}, false, false},
		{"label of nobody", &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{observed.LabelPodUID: "nobody"}}, false, false},
	}
	for _, tt := range tests {
		items, err := p.Runtime.ListPodSandbox(p.ctx, tt.filter)
		p.ok(err, "ListPodSandbox")
		has := func(id string) bool {
			return slices.ContainsFunc(items, func(s *runtimeapi.PodSandbox) bool { return s.GetId() == id })
		}
		equal(p, tt.name+": the ready one is listed", has(up), tt.up)
		equal(p, tt.name+": the stopped one is listed", has(down), tt.down)
	}
}

func sandboxReserved(p *promiseTest) {
	pod := p.podConfig()
	first := p.run(pod)
	if id, err := p.Runtime.RunPodSandbox(p.ctx, pod, ""); err == nil {
		p.removeAtEnd(id)
		p.Fatalf("a second sandbox %s was made beside %s", id, first)
	}
	pod.Metadata.Attempt = 1
	second := p.run(pod)
	equal(p, "attempt", p.sandbox(second).GetMetadata().GetAttempt(), 1)
	p.ok(p.Runtime.StopPodSandbox(p.ctx, first), "StopPodSandbox")
	p.ok(p.Runtime.RemovePodSandbox(p.ctx, first), "RemovePodSandbox")
	pod.Metadata.Attempt = 0
	p.run(pod) // the name is free again
}

func sandboxStop(p *promiseTest) {
	_, id, container := p.started(p.Forever)
	p.ok(p.Runtime.StopPodSandbox(p.ctx, id), "StopPodSandbox")
	st := p.sandbox(id)
	equal(p, "state", st.GetState(), notReady)
	equal(p, "address", st.GetNetwork().GetIp(), "")
	p.becomes(container, exited)
	p.ok(p.Runtime.StopPodSandbox(p.ctx, id), "StopPodSandbox again")
}

func sandboxRemove(p *promiseTest) {
	id := p.run(p.podConfig())
	p.ok(p.Runtime.StopPodSandbox(p.ctx, id), "StopPodSandbox")
	p.ok(p.Runtime.RemovePodSandbox(p.ctx, id), "RemovePodSandbox")
	if _, err := p.Runtime.PodSandboxStatus(p.ctx, id, false); !p.IsNotFound(err) {
		p.Errorf("PodSandboxStatus = %v, want NotFound", err)
	}
	p.ok(p.Runtime.RemovePodSandbox(p.ctx, id), "RemovePodSandbox again")
}

func sandboxRemoveRunning(p *promiseTest) {
	_, id, container := p.started(p.Forever)
	p.ok(p.Runtime.RemovePodSandbox(p.ctx, id), "RemovePodSandbox")
	if _, err := p.Runtime.ContainerStatus(p.ctx, container, false); !p.IsNotFound(err) {
		p.Errorf("ContainerStatus = %v, want NotFound", err)
	}
}

func sandboxesAtOnce(p *promiseTest) {
	const n = 5
	ids, errs := make([]string, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		pod := p.podConfig()
		wg.Go(func() { ids[i], errs[i] = p.Runtime.RunPodSandbox(p.ctx, pod, "") })
	}
	wg.Wait()
	addresses := map[string]bool{}
	for i := range n {
		p.ok(errs[i], "RunPodSandbox")
		p.removeAtEnd(ids[i])
		addresses[p.sandbox(ids[i]).GetNetwork().GetIp()] = true
	}
	equal(p, "number of different addresses", len(addresses), n)
}
