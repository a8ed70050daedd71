package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// options is all that decides how this process behaves.
type options struct {
	config   kubeletconfig.KubeletConfiguration
	ignored  []string // fields of the configuration file that are not honoured yet
	rootDir  string
	certDir  string
	nodeName string
	nodeIPs  []string
	labels   map[string]string // of the node; nodeSelector and node affinity look at them
	runtime  string            // "" or "fake"
	// containerLogDir gets links to container logs under their older names.
	containerLogDir string
	verbosity       int
	// credentialProviders is the file that names plug-ins for image credentials,
	// credentialProviderDir where their programs are.
	credentialProviders, credentialProviderDir string
}

// errUsage is returned after help was asked for and printed.
var errUsage = errors.New("usage was printed")

// notYet are flags of the kubelet that this version knows and can't honour.
// They are refused: a node that silently does not join its cluster would be
// found out much later.
var notYet = []string{"kubeconfig", "bootstrap-kubeconfig", "register-with-taints"}

// parseFlags reads args (without the program's name) and the configuration file
// they name. Flags win over the file. Nothing is started, opened or written.
func parseFlags(args []string, out io.Writer) (options, error) {
	var o options
	fs := pflag.NewFlagSet("fullnode", pflag.ContinueOnError)
	fs.SetOutput(out)
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	file := fs.String("config", "", "KubeletConfiguration (kubelet.config.k8s.io/v1beta1), YAML or JSON")
	endpoint := fs.String("container-runtime-endpoint", "", "CRI socket, for example unix:///run/containerd/containerd.sock; overrides the configuration")
	manifests := fs.String("pod-manifest-path", "", "directory or file of pod manifests to run; overrides staticPodPath of the configuration")
	manifestURL := fs.String("manifest-url", "", "URL of pod manifests to run; overrides staticPodURL of the configuration")
	fs.StringVar(&o.rootDir, "root-dir", defaultRootDir, "directory for pods' volumes and the agent's state")
	fs.StringVar(&o.certDir, "cert-dir", "", "directory of the serving certificate (default ROOT-DIR/pki)")
	hostname := fs.String("hostname-override", "", "name of this node (default: the host's name)")
	nodeIP := fs.String("node-ip", "", "address of this node, or two, comma-separated, for dual stack")
	labels := fs.StringToString("node-labels", nil, "labels of this node, key=value, comma-separated")
	fs.StringVar(&o.credentialProviders, "image-credential-provider-config", "", "CredentialProviderConfig that names the plug-ins for image credentials")
	fs.StringVar(&o.credentialProviderDir, "image-credential-provider-bin-dir", "", "directory of those plug-ins")
	fs.StringVar(&o.runtime, "runtime", "", `"fake" runs pods in memory only: no root and no container runtime needed, and nothing really runs`)
	fs.IntVarP(&o.verbosity, "v", "v", 0, "log verbosity, 0 to 10")
	for _, name := range notYet {
		fs.String(name, "", "not supported by this version")
		fs.MarkHidden(name) //nolint:errcheck // the flag was defined above
	}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return o, errUsage
		}
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q: flags start with --", fs.Arg(0))
	}
	for _, name := range notYet {
		if fs.Changed(name) {
			return o, fmt.Errorf("--%s is not supported by this version: it runs pods of manifest files and URLs only", name)
		}
	}
	var err error
	if o.config, o.ignored, err = loadConfig(*file); err != nil {
		return o, err
	}
	override := func(name string, field *string, value string) {
		if fs.Changed(name) {
			*field = value
		}
	}
	if o.runtime == "fake" {
		if err := o.withoutRoot(fs.Changed("root-dir")); err != nil {
			return o, err
		}
	}
	override("container-runtime-endpoint", &o.config.ContainerRuntimeEndpoint, *endpoint)
	override("pod-manifest-path", &o.config.StaticPodPath, *manifests)
	override("manifest-url", &o.config.StaticPodURL, *manifestURL)
	o.labels = *labels
	return o, o.complete(*hostname, *nodeIP)
}

const (
	defaultRootDir         = "/var/lib/kubelet"
	defaultPodLogsDir      = "/var/log/pods"
	defaultContainerLogDir = "/var/log/containers"
)

// withoutRoot moves the default directories to where any user may write: the
// fake runtime needs no root.
func (o *options) withoutRoot(rootDirGiven bool) error {
	if !rootDirGiven {
		cache, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("find a directory for the fake node (give --root-dir): %w", err)
		}
		o.rootDir = filepath.Join(cache, "kubeletkit-fake")
	}
	if o.config.PodLogsDir == defaultPodLogsDir {
		dir, err := filepath.Abs(o.rootDir)
		if err != nil {
			return fmt.Errorf("resolve --root-dir: %w", err)
		}
		o.config.PodLogsDir = filepath.Join(dir, "log", "pods")
	}
	return nil
}

// complete fills in what depends on the machine and checks the whole.
func (o *options) complete(hostname, nodeIP string) error {
	if o.runtime != "" && o.runtime != "fake" {
		return fmt.Errorf("--runtime %q: the only value is fake; name a CRI socket with --container-runtime-endpoint", o.runtime)
	}
	if err := validate(&o.config); err != nil {
		return err
	}
	var err error
	for _, p := range []*string{&o.rootDir, &o.certDir, &o.config.StaticPodPath} {
		if *p != "" {
			if *p, err = filepath.Abs(*p); err != nil {
				return fmt.Errorf("resolve %s: %w", *p, err)
			}
		}
	}
	if o.runtime != "fake" {
		o.containerLogDir = defaultContainerLogDir
	}
	if o.certDir == "" {
		o.certDir = filepath.Join(o.rootDir, "pki")
	}
	if hostname == "" {
		if hostname, err = os.Hostname(); err != nil {
			return fmt.Errorf("ask for the host's name (give --hostname-override): %w", err)
		}
	}
	o.nodeName = strings.ToLower(strings.TrimSpace(hostname))
	if msgs := validation.IsDNS1123Subdomain(o.nodeName); len(msgs) > 0 {
		return fmt.Errorf("node name %q (from the host's name or --hostname-override): %s", o.nodeName, strings.Join(msgs, "; "))
	}
	if o.nodeIPs, err = nodeAddresses(nodeIP); err != nil {
		return err
	}
	if err := o.label(); err != nil {
		return err
	}
	if o.config.StaticPodURL != "" && !urlPattern.MatchString(o.config.StaticPodURL) {
		return fmt.Errorf("staticPodURL %q must start with http:// or https://", o.config.StaticPodURL)
	}
	return nil
}

var urlPattern = regexp.MustCompile(`^https?://[^/]+`)

// label adds the labels that every node has to those of the flag.
func (o *options) label() error {
	for key, value := range o.labels {
		if msgs := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(msgs) > 0 {
			return fmt.Errorf("--node-labels %s=%s: %s", key, value, strings.Join(msgs, "; "))
		}
	}
	all := map[string]string{
		corev1.LabelHostname: o.nodeName, corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH,
	}
	maps.Copy(all, o.labels)
	o.labels = all
	return nil
}
