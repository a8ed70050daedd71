package main

import (
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/observed"
)

func TestRuntimeClassesAreHandlers(t *testing.T) {
	can := observed.HandlerFeatures{UserNamespaces: true}
	tells := critest.Config{Handlers: []string{"kata"}, Features: &observed.RuntimeFeatures{Handlers: map[string]observed.HandlerFeatures{"": {}, "kata": can}}}
	tests := []struct {
		name    string
		runtime critest.Config
		class   *string
		want    string
		can     observed.HandlerFeatures
		problem string
	}{
		{"no class is the default handler", tells, nil, "", observed.HandlerFeatures{}, ""},
		{"a class is the handler of its name", tells, ptr.To("kata"), "kata", can, ""},
		{"a class without a handler is an error that names those there are", tells, ptr.To("gvisor"), "", observed.HandlerFeatures{}, `runtime class "gvisor": the runtime has no handler of this name, only "" "kata"`},
		{"a runtime that tells of no handler decides itself", critest.Containerd16(), ptr.To("gvisor"), "gvisor", observed.HandlerFeatures{}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newRuntimeWatch(critest.New(tt.runtime), logr.Discard())
			w.ask(t.Context())
			name, can, err := w.Handler(&corev1.Pod{Spec: corev1.PodSpec{RuntimeClassName: tt.class}})
			wantError(t, err, tt.problem)
			if name != tt.want || can != tt.can {
				t.Errorf("Handler = %q, %+v, want %q, %+v", name, can, tt.want, tt.can)
			}
		})
	}
}
