package podnet

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
)

// Reasons of the events, in the kubelet's words. All are warnings.
const (
	ReasonForming    = "DNSConfigForming"
	ReasonNoDNS      = "MissingClusterDNS"
	ReasonResolvConf = "CheckLimitsForResolvConf"
)

// Config has a useful zero value: a node without cluster DNS whose pods ask a name
// server on their own loopback address.
type Config struct {
	ClusterDomain string   // for example cluster.local; empty makes no search domains
	ClusterDNS    []string // addresses; empty makes ClusterFirst the same as Default
	// ResolvConf is the host's file that pods inherit from, most often
	// /etc/resolv.conf. Empty: pods inherit nothing.
	ResolvConf string
	// NodeIPs choose the family of the loopback name server that policy Default
	// has without a ResolvConf.
	NodeIPs       []string
	NodeHostsFile string      // default /etc/hosts
	Hooks         Hooks       // default no-ops
	Log           logr.Logger // default discards
}

// Hooks report what a person should know.
type Hooks struct {
	// Event is called at most once in ten minutes for the same pod and words. pod
	// is nil for an event about the node.
	Event func(pod *corev1.Pod, eventType, reason, message string)
}

// Net answers for one node. Its methods may be called at any time, from any
// goroutine.
type Net struct {
	cfg Config

	mu struct {
		sync.Mutex
		told map[telling]time.Time
	}
}

// New checks cfg. It reads no file: see [Net.CheckResolvConf].
func New(cfg Config) (*Net, error) {
	for _, ip := range cfg.ClusterDNS {
		if _, err := netip.ParseAddr(ip); err != nil {
			return nil, fmt.Errorf("podnet: Config.ClusterDNS has %q, want IP addresses", ip)
		}
	}
	if cfg.NodeHostsFile == "" {
		cfg.NodeHostsFile = "/etc/hosts"
	}
	if cfg.Hooks.Event == nil {
		cfg.Hooks.Event = func(*corev1.Pod, string, string, string) {}
	}
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	n := &Net{cfg: cfg}
	n.mu.told = map[telling]time.Time{}
	return n, nil
}

// telling is one warning. A sandbox that is made again and again needs it once.
type telling struct{ uid, reason, message string }

const tellAgain = 10 * time.Minute

// warn gives the event unless it was given in the last minutes.
func (n *Net) warn(pod *corev1.Pod, reason, message string) {
	t := telling{reason: reason, message: message}
	if pod != nil {
		t.uid = string(pod.UID)
	}
	if n.mayTell(t, time.Now()) {
		n.cfg.Hooks.Event(pod, corev1.EventTypeWarning, reason, message)
	}
}

// mayTell also drops what is old, so the memory is bounded by the pods of the last
// minutes that gave reason to warn.
func (n *Net) mayTell(t telling, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for old, at := range n.mu.told {
		if now.Sub(at) >= tellAgain {
			delete(n.mu.told, old)
		}
	}
	if _, told := n.mu.told[t]; told {
		return false
	}
	n.mu.told[t] = now
	return true
}
