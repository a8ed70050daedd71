package critest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func logPromises() []promise {
	return []promise{
		{"a started container has its log file", logExists},
		{"reopening makes a new log file", logReopen},
		{"the log is in the CRI format", logFormat},
	}
}

func logExists(p *promiseTest) {
	pod, _, id := p.started(p.Forever)
	want := filepath.Join(pod.GetLogDirectory(), "app", "0.log")
	equal(p, "log path", p.container(id).GetLogPath(), want)
	if _, err := os.Stat(want); err != nil {
		p.Error(err)
	}
}

func logReopen(p *promiseTest) {
	pod, _, id := p.started(p.Forever)
	path := filepath.Join(pod.GetLogDirectory(), "app", "0.log")
	p.ok(os.Rename(path, path+".old"), "rotate")
	p.ok(p.Runtime.ReopenContainerLog(p.ctx, id), "ReopenContainerLog")
	if _, err := os.Stat(path); err != nil {
		p.Error(err)
	}
	p.ok(p.Runtime.StopContainer(p.ctx, id, 0), "StopContainer")
	p.becomes(id, exited)
	p.ok(os.Rename(path, path+".older"), "rotate again")
	if p.Runtime.ReopenContainerLog(p.ctx, id) != nil {
		if _, err := os.Stat(path); err == nil {
			p.Error("ReopenContainerLog failed and made a file all the same")
		}
	}
}

func logFormat(p *promiseTest) {
	if p.Hello.Image == "" {
		return // the target has no program that prints
	}
	pod, _, id := p.started(p.Hello)
	equal(p, "exit code", p.becomes(id, exited).GetExitCode(), 0)
	p.eventually(func() error {
		text, err := os.ReadFile(filepath.Join(pod.GetLogDirectory(), "app", "0.log"))
		if err != nil {
			return err
		}
		line, _, whole := strings.Cut(string(text), "\n")
		at, rest, _ := strings.Cut(line, " ")
		if _, err := time.Parse(time.RFC3339Nano, at); err != nil || !whole || rest != "stdout F hello" {
			return fmt.Errorf("log = %q, want a time and %q", text, "stdout F hello\n")
		}
		return nil
	})
}

func imagePromises() []promise {
	return []promise{
		{"a present image has an ID and is listed", imagePresent},
		{"an absent image is no error", func(p *promiseTest) {
			resp, err := p.Images.ImageStatus(p.ctx, &runtimeapi.ImageSpec{Image: "localhost/critest/no-such-image:1"}, false)
			p.ok(err, "ImageStatus")
			if resp.GetImage() != nil {
				p.Errorf("ImageStatus = %v, want no image", resp.GetImage())
			}
			p.ok(p.Images.RemoveImage(p.ctx, &runtimeapi.ImageSpec{Image: "localhost/critest/no-such-image:1"}), "RemoveImage")
		}},
		{"a pulled image is present until it is removed", imagePull},
		{"the image file system is known", func(p *promiseTest) {
			resp, err := p.Images.ImageFsInfo(p.ctx)
			p.ok(err, "ImageFsInfo")
			if len(resp.GetImageFilesystems()) == 0 || resp.GetImageFilesystems()[0].GetFsId().GetMountpoint() == "" {
				p.Errorf("ImageFsInfo = %v, want a mount point", resp)
			}
		}},
	}
}

func imagePresent(p *promiseTest) {
	resp, err := p.Images.ImageStatus(p.ctx, &runtimeapi.ImageSpec{Image: p.Forever.Image}, false)
	p.ok(err, "ImageStatus")
	id := resp.GetImage().GetId()
	if id == "" || len(resp.GetImage().GetRepoTags())+len(resp.GetImage().GetRepoDigests()) == 0 {
		p.Fatalf("ImageStatus = %v, want an ID and names", resp)
	}
	byID, err := p.Images.ImageStatus(p.ctx, &runtimeapi.ImageSpec{Image: id}, false)
	p.ok(err, "ImageStatus by ID")
	equal(p, "ID of the image found by ID", byID.GetImage().GetId(), id)
	all, err := p.Images.ListImages(p.ctx, nil)
	p.ok(err, "ListImages")
	if !slices.ContainsFunc(all, func(m *runtimeapi.Image) bool { return m.GetId() == id }) {
		p.Errorf("image %s is not listed", id)
	}
	// An agent makes containers by the ID that it was told.
	pod := p.podConfig()
	c := p.container(p.create(p.run(pod), pod, Program{Image: id, Command: p.Forever.Command, Args: p.Forever.Args}))
	if c.GetImageRef() == "" || c.GetImage().GetImage() == "" {
		p.Errorf("the container's image is %v, reference %q", c.GetImage(), c.GetImageRef())
	}
}

func imagePull(p *promiseTest) {
	if p.Pull == "" {
		return // the target has no registry
	}
	spec := &runtimeapi.ImageSpec{Image: p.Pull}
	present := func() *runtimeapi.Image {
		p.Helper()
		resp, err := p.Images.ImageStatus(p.ctx, spec, false)
		p.ok(err, "ImageStatus")
		return resp.GetImage()
	}
	p.ok(p.Images.RemoveImage(p.ctx, spec), "RemoveImage")
	if m := present(); m != nil {
		p.Fatalf("image %v is still there after it was removed", m)
	}
	first, err := p.Images.PullImage(p.ctx, spec, nil, nil)
	p.ok(err, "PullImage")
	second, err := p.Images.PullImage(p.ctx, spec, nil, nil)
	p.ok(err, "PullImage again")
	equal(p, "ID of the second pull", second, first)
	equal(p, "ID of the present image", present().GetId(), first)
	if present().GetSize() == 0 {
		p.Error("the image has no size")
	}
	p.ok(p.Images.RemoveImage(p.ctx, spec), "RemoveImage")
	absent := &runtimeapi.ImageSpec{Image: p.Pull + "-that-nobody-pushed"}
	if _, err := p.Images.PullImage(p.ctx, absent, nil, nil); err == nil {
		p.Errorf("image %s was pulled, and does not exist", absent.GetImage())
	}
}

func eventPromises() []promise {
	return []promise{{"events tell a container's life in order, or are unimplemented", eventLife}}
}

func eventLife(p *promiseTest) {
	ctx, cancel := context.WithCancel(p.ctx)
	events := make(chan *runtimeapi.ContainerEventResponse, 1000)
	opened := make(chan struct{})
	failed := make(chan error, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		failed <- p.Runtime.GetContainerEvents(ctx, events, func(runtimeapi.RuntimeService_GetContainerEventsClient) { close(opened) })
	})
	select {
	case <-opened:
	case err := <-failed:
		if !p.IsUnimplemented(err) {
			p.Errorf("GetContainerEvents: %v", err)
		}
		return
	}
	// A real client reports the stream open before the runtime has taken the
	// subscription, and learns only later that there is none.
	if err := p.firstEvent(events, failed); err != nil {
		if !p.IsUnimplemented(err) {
			p.Errorf("GetContainerEvents: %v", err)
		}
		return
	}
	_, _, id := p.started(p.Exit3)
	p.becomes(id, exited)
	p.ok(p.Runtime.RemoveContainer(p.ctx, id), "RemoveContainer")
	for _, want := range []runtimeapi.ContainerEventType{
		runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
		runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT,
	} {
		ev := p.eventOf(id, events)
		equal(p, "event", ev.GetContainerEventType(), want)
		if ev.GetPodSandboxStatus() == nil {
			p.Errorf("%s carries no sandbox status", want)
		}
	}
}

// firstEvent makes sandboxes until the stream tells of one.
func (p *promiseTest) firstEvent(events <-chan *runtimeapi.ContainerEventResponse, failed <-chan error) error {
	deadline := time.After(suiteWait)
	for {
		p.run(p.podConfig())
		select {
		case <-events:
			return nil
		case err := <-failed:
			return err
		case <-time.After(200 * time.Millisecond):
		case <-deadline:
			return errors.New("the stream is open and says nothing")
		}
	}
}

// eventOf waits for the next event of one container.
func (p *promiseTest) eventOf(id string, events <-chan *runtimeapi.ContainerEventResponse) *runtimeapi.ContainerEventResponse {
	p.Helper()
	deadline := time.After(suiteWait)
	for {
		select {
		case ev := <-events:
			if ev.GetContainerId() == id {
				return ev
			}
		case <-deadline:
			p.Fatalf("no more events of container %s", id)
		}
	}
}
