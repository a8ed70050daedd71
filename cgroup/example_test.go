package cgroup_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/cgroup"
)

// What a pod's cgroup will be called and hold. To make it, see [cgroup.New],
// [cgroup.Tree.Start] and [cgroup.Tree.Ensure]; that takes Linux and root.
func Example() {
	half := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("500m"),
		corev1.ResourceMemory: resource.MustParse("64Mi"),
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name:      "app",
		Resources: corev1.ResourceRequirements{Requests: half, Limits: half},
	}}}}
	name, err := cgroup.Name(cgroup.Systemd, "/", corev1.PodQOSGuaranteed, "6a4f-2e3b")
	if err != nil {
		fmt.Println(err)
		return
	}
	r := cgroup.Limits(pod, cgroup.Config{CPUCFSQuota: true})
	fmt.Println(name)
	fmt.Println("shares", *r.CPUShares, "quota", *r.CPUQuota, "of", *r.CPUPeriod, "memory", *r.Memory)
	// Output:
	// /kubepods.slice/kubepods-pod6a4f_2e3b.slice
	// shares 512 quota 50000 of 100000 memory 67108864
}
