package server

import (
	"encoding/json"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Parts are the groups of routes a node can offer. A nil part answers 501.
type Parts struct {
	Healthz http.Handler // /healthz and below, see [Healthz]
	Pods    http.Handler // /pods, see [Pods]
	Metrics http.Handler // /metrics
}

// Routes mounts parts under the kubelet's paths. The handler answers 404 to any
// other path, and puts no path into a metric's label or a log line: those must
// not come from a stranger's request.
func Routes(p Parts) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/healthz", orMissing(p.Healthz))
	mux.Handle("/healthz/", orMissing(p.Healthz))
	mux.Handle("/pods", getOnly(orMissing(p.Pods)))
	mux.Handle("/metrics", getOnly(orMissing(p.Metrics)))
	return mux
}

func orMissing(h http.Handler) http.Handler {
	if h != nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "this node does not offer this endpoint", http.StatusNotImplemented)
	})
}

// getOnly answers other methods as the kubelet does. HEAD is a GET without body.
func getOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET")
			http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// PodLister supplies the desired pods, each with its reported status filled in.
// The pods are only read.
type PodLister interface {
	Pods() []*corev1.Pod
}

// Pods serves a v1.PodList of what the node is asked to run.
func Pods(l PodLister) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []corev1.Pod{}}
		for _, p := range l.Pods() {
			list.Items = append(list.Items, *p)
		}
		body, err := json.Marshal(&list)
		if err != nil {
			http.Error(w, fmt.Sprintf("encode the pods: %v", err), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(body) //nolint:errcheck // the client has gone
	})
}
