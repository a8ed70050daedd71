package podsource_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubeletkit/kubeletkit/podsource"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A node that runs what its manifest directory says.
func Example() {
	dir, err := os.MkdirTemp("", "manifests")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	web := filepath.Join(dir, "web.yaml")
	os.WriteFile(web, []byte(`
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: app, image: "example.com/web:1"}]}
`), 0o644)

	files, err := podsource.NewFiles(podsource.FilesConfig{Path: dir, NodeName: "node-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux, err := podsource.New(podsource.Config{Sources: []podsource.Source{files}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- mux.Run(ctx) }()

	for update := range mux.Updates() {
		for _, pod := range update.Pods {
			fmt.Println(update.Op, podsource.FullName(pod), "from", update.Source)
		}
		mux.MarkSeen(update.Source)
		switch update.Op {
		case podsource.OpAdd:
			fmt.Println("every source heard:", mux.AllSeen())
			os.Remove(web)
		case podsource.OpRemove:
			cancel()
		}
	}
	fmt.Println("ended:", <-ended)
	// Output:
	// Add web-node-1_default from file
	// every source heard: true
	// Remove web-node-1_default from file
	// ended: <nil>
}

// oven is a source of an embedder's own: it always wants one pod.
type oven struct{ pod *corev1.Pod }

func (oven) Name() string { return "oven" }

func (o oven) Run(ctx context.Context, set func([]*corev1.Pod)) error {
	set([]*corev1.Pod{o.pod})
	<-ctx.Done()
	return nil
}

func ExampleSource() {
	mux, err := podsource.New(podsource.Config{Sources: []podsource.Source{oven{
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bread", UID: "1"}},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- mux.Run(ctx) }()
	update := <-mux.Updates()
	fmt.Println(update.Op, update.Pods[0].Name, "from", update.Source, "static:", podsource.IsStatic(update.Pods[0]))
	cancel()
	fmt.Println(<-ended)
	// Output:
	// Add bread from oven static: true
	// <nil>
}

func ExampleDecode() {
	_, err := podsource.Decode([]byte(`
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: app
    image: example.com/web:1
    env: [{name: PORT, value: 80}]
`), podsource.Origin{Kind: podsource.SourceFile, Name: "/etc/manifests/web.yaml", Node: "node-1"})
	fmt.Println(err)
	// Output:
	// /etc/manifests/web.yaml document 1: spec.containers[0].env[0].value: Invalid value: 80: want a string, have number; put it in quotes
}

// A node without an API server that keeps a pod's configuration in its manifest.
func ExampleObjects() {
	dir, err := os.MkdirTemp("", "manifests")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(`
apiVersion: v1
kind: ConfigMap
metadata: {name: web}
data: {greeting: hello}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: app
    image: example.com/web:1
    envFrom: [{configMapRef: {name: web}}]
`), 0o600)

	objects := podsource.NewObjects(podsource.ObjectsConfig{
		Changed: func(keys []podsource.ObjectKey) { fmt.Println("changed:", keys) },
	})
	files, err := podsource.NewFiles(podsource.FilesConfig{Path: dir, NodeName: "node-1", Objects: objects})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = files.Run(ctx, func(pods []*corev1.Pod) {
		web, err := objects.ConfigMap(ctx, pods[0].Namespace, "web")
		fmt.Println(pods[0].Name, "finds", web.Data, err)
		_, err = objects.Secret(ctx, pods[0].Namespace, "web")
		fmt.Println(err)
		cancel()
	})
	fmt.Println("ended:", err)
	// Output:
	// changed: [ConfigMap default/web]
	// web-node-1 finds map[greeting:hello] <nil>
	// secrets "web" not found
	// ended: <nil>
}
