package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
)

// waitPods returns what the agent reports as soon as every demo pod runs or
// has ended well, and at the latest after podsWithin, with an error then.
func (n *node) waitPods(ctx context.Context, agent *agent) ([]corev1.Pod, error) {
	files, err := filepath.Glob(filepath.Join(n.manifests, "*.yaml"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, podsWithin)
	defer cancel()
	var pods []corev1.Pod
	err = agent.until(ctx, func() error {
		body, err := get(ctx, n.ports.readOnly, "/pods")
		if err != nil {
			return err
		}
		var list corev1.PodList
		if err := json.Unmarshal(body, &list); err != nil {
			return fmt.Errorf("read /pods: %w", err)
		}
		pods = list.Items
		if len(pods) < len(files) {
			return fmt.Errorf("%d of %d pods are known to the agent", len(pods), len(files))
		}
		for _, p := range pods {
			if !settled(p) {
				return fmt.Errorf("pod %s/%s is %s: %s", p.Namespace, p.Name, phase(p), reasons(p))
			}
		}
		return nil
	})
	return pods, err
}

// settled: all containers run, or the pod has ended well.
func settled(p corev1.Pod) bool {
	if p.Status.Phase == corev1.PodSucceeded {
		return true
	}
	if p.Status.Phase != corev1.PodRunning || p.Spec.RestartPolicy == corev1.RestartPolicyNever {
		return false
	}
	return !slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Running == nil
	})
}

func phase(p corev1.Pod) string {
	if p.Status.Phase == "" {
		return "not reported yet"
	}
	return string(p.Status.Phase)
}

func reasons(p corev1.Pod) string {
	all := []string{p.Status.Reason, p.Status.Message}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil {
			all = append(all, c.Name+" waits: "+strings.TrimSpace(w.Reason+" "+w.Message))
		}
	}
	all = slices.DeleteFunc(all, func(s string) bool { return s == "" })
	return strings.Join(all, "; ")
}

func printPods(out io.Writer, pods []corev1.Pod) {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "\nPOD\tPHASE\tIP\tCONTAINERS")
	for _, p := range pods {
		var containers []string
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			containers = append(containers, c.Name+" "+state(c.State))
		}
		ip := p.Status.PodIP
		if ip == "" {
			ip = "-"
		}
		fmt.Fprintf(w, "%s/%s\t%s\t%s\t%s\n", p.Namespace, p.Name, phase(p), ip, strings.Join(containers, ", "))
	}
	w.Flush()
}

func state(s corev1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return fmt.Sprintf("exited %d", s.Terminated.ExitCode)
	case s.Waiting != nil && s.Waiting.Reason != "":
		return s.Waiting.Reason
	}
	return "waiting"
}
