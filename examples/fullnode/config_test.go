package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

const header = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n"

func TestWrongFlagsAndConfigurationAreRefusedWithAClearLine(t *testing.T) {
	for _, c := range []struct {
		name, config string
		args         []string
		want         string
	}{
		{"an unknown flag", "", []string{"--no-such-flag"}, "unknown flag: --no-such-flag"},
		{"an argument that is no flag", "", []string{"run"}, `unknown argument "run"`},
		{"a flag of the kubelet that would be ignored", "", []string{"--kubeconfig", "/etc/k"}, "--kubeconfig is not supported by this version"},
		{"a runtime that does not exist", "", []string{"--runtime", "docker"}, "the only value is fake"},
		{"a node name that can't be one", "", []string{"--hostname-override", "my_node"}, `node name "my_node"`},
		{"an address that is none", "", []string{"--node-ip", "localhost"}, `"localhost" is not an IP address`},
		{"a URL without a scheme", "", []string{"--manifest-url", "example.org/pods"}, "must start with http"},
		{"a configuration that is not there", "", []string{"--config", "/no/such/file"}, "read the configuration: open /no/such/file"},
		{"an empty configuration", "\n", nil, "it is empty"},
		{"another kind", "kind: Pod\napiVersion: v1\n", nil, "want KubeletConfiguration"},
		{"not YAML", header + "port: [", nil, "not YAML or JSON"},
		{"an unknown field", header + "staticPodPaht: /etc\n", nil, `unknown field "staticPodPaht"`},
		{"an unknown field further down", header + "authentication: {anonymous: {enable: true}}\n", nil, `unknown field "authentication.anonymous.enable"`},
		{"a field given twice", header + "port: 1\nport: 2\n", nil, `key "port" already set`},
		{"a value of the wrong type", header + "port: web\n", nil, "cannot unmarshal"},
		{"a port out of range", header + "port: 70000\n", nil, "invalid configuration: port 70000 must be between 1 and 65535"},
		{"a relative log directory is resolved but dots are not", header + "podLogsDir: /var/../log\n", nil, "podLogsDir"},
		{"half a certificate", header + "tlsCertFile: a.crt\n", nil, "tlsCertFile and tlsPrivateKeyFile must be given together"},
		{"parallel pulls that are serial", header + "maxParallelImagePulls: 3\nserializeImagePulls: true\n", nil, "needs serializeImagePulls: false"},
		{"an authorization mode", header + "authorization: {mode: Maybe}\n", nil, "must be AlwaysAllow or Webhook"},
		{"a back-off beyond the limit", header + "crashLoopBackOff: {maxContainerRestartPeriod: 10m}\n", nil, "between 1s and 300s"},
		{"a TLS version", header + "tlsMinVersion: SSL3\n", nil, "tlsMinVersion"},
		{"a cipher suite", header + "tlsCipherSuites: [ROT13]\n", nil, `"ROT13" is not a cipher suite`},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := c.args
			if c.config != "" {
				args = append(args, "--config", writeConfig(t, c.config))
			}
			_, err := parseFlags(args, io.Discard)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("parseFlags(%q) = %v, want an error with %q", args, err, c.want)
			}
		})
	}
}

func TestAllProblemsOfAConfigurationAreToldTogether(t *testing.T) {
	_, err := parseFlags([]string{"--config", writeConfig(t, header+"port: -1\nmaxPods: -2\n")}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "port -1") || !strings.Contains(err.Error(), "maxPods -2") {
		t.Errorf("error = %v, want both problems", err)
	}
}

func TestFlagsWinOverTheConfigurationAndPathsAreResolved(t *testing.T) {
	file := writeConfig(t, header+"staticPodPath: manifests\ncontainerRuntimeEndpoint: unix:///a.sock\nsyncFrequency: 30s\nevictionHard: {}\ncpuManagerPolicy: static\nfeatureGates: {EventedPLEG: false, Other: true}\n")
	o, err := parseFlags([]string{"--config=" + file, "--container_runtime_endpoint", "unix:///b.sock", "--hostname-override", "Node-1", "--v=3"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := o.config.StaticPodPath, filepath.Join(filepath.Dir(file), "manifests"); got != want {
		t.Errorf("staticPodPath = %q, want %q", got, want)
	}
	if got := o.config.ContainerRuntimeEndpoint; got != "unix:///b.sock" {
		t.Errorf("endpoint = %q, want the flag's", got)
	}
	if o.nodeName != "node-1" || o.verbosity != 3 || o.config.SyncFrequency.Duration != 30*time.Second {
		t.Errorf("options = %q %d %v", o.nodeName, o.verbosity, o.config.SyncFrequency)
	}
	if diff := cmp.Diff([]string{"cpuManagerPolicy", "evictionHard", "featureGates.Other"}, o.ignored); diff != "" {
		t.Errorf("fields that are not honoured (-want +got):\n%s", diff)
	}
}

func TestDefaultsAreTheSecureOnesWithAndWithoutAFile(t *testing.T) {
	for _, args := range [][]string{nil, {"--config", writeConfig(t, header)}} {
		o, err := parseFlags(append(args, "--hostname-override", "n"), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		c := o.config
		if *c.Authentication.Anonymous.Enabled || c.ReadOnlyPort != 0 || c.Authorization.Mode != "Webhook" {
			t.Errorf("%v: the node is open by default", args)
		}
		if c.Port != 10250 || *c.HealthzPort != 10248 || c.HealthzBindAddress != "127.0.0.1" || c.PodLogsDir != "/var/log/pods" || c.MaxPods != 110 || *c.SerializeImagePulls || *c.MaxParallelImagePulls != 5 {
			t.Errorf("%v: defaults = %+v", args, c)
		}
	}
}

func TestHelpTellsTheFlags(t *testing.T) {
	var out bytes.Buffer
	if _, err := parseFlags([]string{"--help"}, &out); err != errUsage {
		t.Errorf("parseFlags(--help) = %v", err)
	}
	if !strings.Contains(out.String(), "--pod-manifest-path") {
		t.Errorf("help = %q", out.String())
	}
}

func FuzzDecodeConfig(f *testing.F) {
	f.Add([]byte(header + "port: 10250\n"))
	f.Add([]byte(`{"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1","crashLoopBackOff":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var o options
		if _, err := decodeConfig(data, &o.config); err != nil {
			return
		}
		setDefaults(&o.config)
		if err := validate(&o.config); err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
	})
}
