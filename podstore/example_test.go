package podstore_test

import (
	"fmt"

	"github.com/kubeletkit/kubeletkit/podsource"
	"github.com/kubeletkit/kubeletkit/podstore"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The API server asks for the logs of a pod it knows by the mirror's UID.
func Example() {
	s := podstore.New()
	s.Update(
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "etcd-n1", UID: "3f1c", Annotations: map[string]string{
			podsource.AnnotationSource: podsource.SourceFile, podsource.AnnotationHash: "3f1c"}}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "etcd-n1", UID: "api-1", Annotations: map[string]string{
			podsource.AnnotationSource: podsource.SourceAPI, podsource.AnnotationMirror: "3f1c"}}},
	)
	fmt.Println("asked for api-1, meant", s.TranslateUID("api-1"))
	for _, pod := range s.Pods() {
		mirror, _ := s.MirrorOf(pod)
		fmt.Println(pod.Name, "runs; its mirror shows it:", podstore.Shows(mirror, pod))
	}
	// Output:
	// asked for api-1, meant 3f1c
	// etcd-n1 runs; its mirror shows it: true
}
