package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
	sigsjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const configAPIVersion = "kubelet.config.k8s.io/v1beta1"

// honoured are the top-level fields of KubeletConfiguration that this version
// acts on. Any other field that is set is named in one warning at start, so
// that nobody believes in a setting that does nothing.
var honoured = []string{
	"kind", "apiVersion",
	"staticPodPath", "staticPodURL", "staticPodURLHeader", "fileCheckFrequency", "httpCheckFrequency", "syncFrequency",
	"enableServer", "address", "port", "readOnlyPort", "healthzBindAddress", "healthzPort",
	"tlsCertFile", "tlsPrivateKeyFile", "tlsMinVersion", "tlsCipherSuites", "authentication", "authorization",
	"containerRuntimeEndpoint", "imageServiceEndpoint", "runtimeRequestTimeout", "podLogsDir", "maxPods",
	"registryPullQPS", "registryBurst", "serializeImagePulls", "maxParallelImagePulls", "crashLoopBackOff", "featureGates",
}

// gateEvents is the kubelet's feature gate for the runtime's events. Here they
// are used unless it is set to false.
const gateEvents = "EventedPLEG"

// loadConfig reads a KubeletConfiguration from file, YAML or JSON. An unknown
// or repeated field is an error. It also returns the fields that are set but
// not honoured. An empty file name gives the defaults.
func loadConfig(file string) (kubeletconfig.KubeletConfiguration, []string, error) {
	var cfg kubeletconfig.KubeletConfiguration
	if file == "" {
		setDefaults(&cfg)
		return cfg, nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return cfg, nil, fmt.Errorf("read the configuration: %w", err)
	}
	ignored, err := decodeConfig(data, &cfg)
	if err != nil {
		return cfg, nil, fmt.Errorf("configuration %s: %w", file, err)
	}
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return cfg, nil, fmt.Errorf("configuration %s: %w", file, err)
	}
	resolvePaths(&cfg, dir)
	setDefaults(&cfg)
	return cfg, ignored, nil
}

// decodeConfig is strict, where the kubelet falls back to lenient decoding: a
// mistyped field of an agent's configuration is never meant.
func decodeConfig(data []byte, cfg *kubeletconfig.KubeletConfiguration) (ignored []string, err error) {
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("not YAML or JSON: %w", err)
	}
	var fields map[string]any
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts(asJSON, &fields); err != nil || fields == nil {
		return nil, errors.New("it is empty; it needs at least kind and apiVersion")
	}
	if fields["kind"] != "KubeletConfiguration" || fields["apiVersion"] != configAPIVersion {
		return nil, fmt.Errorf("kind and apiVersion are %v and %v, want KubeletConfiguration and %s", fields["kind"], fields["apiVersion"], configAPIVersion)
	}
	strict, err := sigsjson.UnmarshalStrict(asJSON, cfg)
	if err != nil {
		return nil, err
	}
	if len(strict) > 0 {
		return nil, errors.Join(strict...)
	}
	for name := range fields {
		if !slices.Contains(honoured, name) && !slices.Contains(honouredForPods, name) {
			ignored = append(ignored, name)
		}
	}
	for gate := range cfg.FeatureGates {
		if gate != gateEvents {
			ignored = append(ignored, "featureGates."+gate)
		}
	}
	sort.Strings(ignored)
	return ignored, nil
}

// resolvePaths makes relative paths relative to the configuration file.
func resolvePaths(cfg *kubeletconfig.KubeletConfiguration, dir string) {
	if cfg.ResolverConfig != nil && *cfg.ResolverConfig != "" && !filepath.IsAbs(*cfg.ResolverConfig) {
		*cfg.ResolverConfig = filepath.Join(dir, *cfg.ResolverConfig)
	}
	for _, p := range []*string{
		&cfg.StaticPodPath, &cfg.PodLogsDir, &cfg.TLSCertFile, &cfg.TLSPrivateKeyFile, &cfg.Authentication.X509.ClientCAFile,
	} {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
}

const defaultParallelPulls = 5

// setDefaults fills in the kubelet's defaults for the honoured fields. They are
// the secure ones of a configuration file in every case; the kubelet without a
// file lets anonymous users in and opens the read-only port.
func setDefaults(cfg *kubeletconfig.KubeletConfiguration) {
	duration := func(d *metav1.Duration, to time.Duration) {
		if d.Duration == 0 {
			d.Duration = to
		}
	}
	duration(&cfg.FileCheckFrequency, 20*time.Second)
	duration(&cfg.HTTPCheckFrequency, 20*time.Second)
	duration(&cfg.SyncFrequency, time.Minute)
	duration(&cfg.RuntimeRequestTimeout, 2*time.Minute)
	orDefault(&cfg.EnableServer, true)
	orDefault(&cfg.HealthzPort, 10248)
	orDefault(&cfg.RegistryPullQPS, 5)
	orDefault(&cfg.Authentication.Anonymous.Enabled, false)
	orDefault(&cfg.Authentication.Webhook.Enabled, true)
	orDefault(&cfg.CrashLoopBackOff.MaxContainerRestartPeriod, metav1.Duration{Duration: 300 * time.Second})
	orZero(&cfg.Address, "0.0.0.0")
	orZero(&cfg.Port, 10250)
	orZero(&cfg.HealthzBindAddress, "127.0.0.1")
	orZero(&cfg.RegistryBurst, 10)
	orZero(&cfg.MaxPods, 110)
	orZero(&cfg.PodLogsDir, "/var/log/pods")
	orZero(&cfg.ContainerRuntimeEndpoint, "unix:///run/containerd/containerd.sock")
	orZero(&cfg.Authorization.Mode, kubeletconfig.KubeletAuthorizationModeWebhook)
	// The kubelet pulls one image at a time unless told otherwise, and one slow
	// registry then holds up every pod (kubernetes issue 109673).
	if cfg.SerializeImagePulls == nil && cfg.MaxParallelImagePulls == nil {
		cfg.MaxParallelImagePulls = ptr.To[int32](defaultParallelPulls)
	}
	orDefault(&cfg.SerializeImagePulls, ptr.Deref(cfg.MaxParallelImagePulls, 0) < 2)
	setPodDefaults(cfg)
}

func orDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func orZero[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// validate returns every problem of the configuration at once.
func validate(cfg *kubeletconfig.KubeletConfiguration) error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("invalid configuration: "+format, args...))
	}
	port := func(name string, p int32, zeroOK bool) {
		if p < 0 || p > 65535 || p == 0 && !zeroOK {
			bad("%s %d must be between 1 and 65535", name, p)
		}
	}
	port("port", cfg.Port, false)
	port("readOnlyPort", cfg.ReadOnlyPort, true)
	port("healthzPort", *cfg.HealthzPort, true)
	notNegative := func(name string, n int64) {
		if n < 0 {
			bad("%s %d must not be negative", name, n)
		}
	}
	notNegative("registryPullQPS", int64(*cfg.RegistryPullQPS))
	notNegative("registryBurst", int64(cfg.RegistryBurst))
	notNegative("maxPods", int64(cfg.MaxPods))
	for name, d := range map[string]time.Duration{
		"fileCheckFrequency": cfg.FileCheckFrequency.Duration, "httpCheckFrequency": cfg.HTTPCheckFrequency.Duration,
		"syncFrequency": cfg.SyncFrequency.Duration, "runtimeRequestTimeout": cfg.RuntimeRequestTimeout.Duration,
	} {
		if d < 0 {
			bad("%s %v must not be negative", name, d)
		}
	}
	if n := cfg.MaxParallelImagePulls; n != nil {
		if *n < 1 {
			bad("maxParallelImagePulls %d must be at least 1", *n)
		}
		if *n > 1 && *cfg.SerializeImagePulls {
			bad("maxParallelImagePulls %d needs serializeImagePulls: false", *n)
		}
	}
	if d := cfg.CrashLoopBackOff.MaxContainerRestartPeriod.Duration; d < time.Second || d > 300*time.Second {
		bad("crashLoopBackOff.maxContainerRestartPeriod %v must be between 1s and 300s", d)
	}
	if !filepath.IsAbs(cfg.PodLogsDir) || filepath.Clean(cfg.PodLogsDir) != strings.TrimSuffix(cfg.PodLogsDir, "/") {
		bad("podLogsDir %q must be an absolute path without . or ..", cfg.PodLogsDir)
	}
	if (cfg.TLSCertFile == "") != (cfg.TLSPrivateKeyFile == "") {
		bad("tlsCertFile and tlsPrivateKeyFile must be given together")
	}
	switch cfg.Authorization.Mode {
	case kubeletconfig.KubeletAuthorizationModeAlwaysAllow, kubeletconfig.KubeletAuthorizationModeWebhook:
	default:
		bad("authorization.mode %q must be AlwaysAllow or Webhook", cfg.Authorization.Mode)
	}
	validateForPods(cfg, bad)
	if _, _, err := tlsSettings(cfg); err != nil {
		bad("%v", err)
	}
	sort.Slice(errs, func(i, j int) bool { return errs[i].Error() < errs[j].Error() })
	return errors.Join(errs...)
}
