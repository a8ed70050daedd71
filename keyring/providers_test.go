package keyring_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubeletkit/kubeletkit/keyring"
)

const goodProvider = `
- name: get-it
  matchImages: ["*.example", "reg.example:5000/team"]
  defaultCacheDuration: 10m
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  args: [get]
  env: [{name: REGION, value: here}]
`

func config(version, providers string) string {
	return "apiVersion: kubelet.config.k8s.io/" + version + "\nkind: CredentialProviderConfig\nproviders:" + providers
}

func TestParseProviders(t *testing.T) {
	good := config("v1", goodProvider)
	token := `  tokenAttributes:
    serviceAccountTokenAudience: reg
    cacheType: Token
    requireServiceAccount: true
    requiredServiceAccountAnnotationKeys: [example.com/Role]
    optionalServiceAccountAnnotationKeys: [other]
`
	swap := func(old, with string) string { return strings.Replace(good+token, old, with, 1) }
	for _, tt := range []struct{ name, text, err string }{
		{"v1", good, ""},
		{"v1beta1", config("v1beta1", goodProvider), ""},
		{"v1alpha1", config("v1alpha1", strings.Replace(goodProvider, "io/v1", "io/v1alpha1", 1)), ""},
		{"JSON", `{"apiVersion":"kubelet.config.k8s.io/v1","kind":"CredentialProviderConfig","providers":[{"name":"p","matchImages":["a"],"defaultCacheDuration":"0s","apiVersion":"credentialprovider.kubelet.k8s.io/v1"}]}`, ""},
		{"tokens", good + token, ""},
		{"tokens before v1", config("v1beta1", goodProvider+token), "providers[0].tokenAttributes: Forbidden: the file must be"},
		{"tokens for an older plug-in", swap("credentialprovider.kubelet.k8s.io/v1", "credentialprovider.kubelet.k8s.io/v1beta1"), "providers[0].tokenAttributes: Forbidden: the plug-in must speak"},
		{"no audience", swap("Audience: reg", `Audience: ""`), "serviceAccountTokenAudience: Required"},
		{"no cache type", swap("cacheType: Token", `cacheType: Pod`), `cacheType: Unsupported value: "Pod"`},
		{"nothing about the account", swap("    requireServiceAccount: true\n", ""), "requireServiceAccount: Required"},
		{"an account that is not required has no required annotation", swap("Account: true", "Account: false"), "requiredServiceAccountAnnotationKeys: Forbidden"},
		{"an annotation that is none", swap("example.com/Role", "a/b/c"), `requiredServiceAccountAnnotationKeys[0]: Invalid value: "a/b/c"`},
		{"an annotation both required and not", swap("[other]", "[example.com/Role]"), "optionalServiceAccountAnnotationKeys[0]: Duplicate"},

		{"another kind", strings.Replace(good, "CredentialProviderConfig", "KubeletConfiguration", 1), "kind KubeletConfiguration"},
		{"another version", config("v2", goodProvider), "want CredentialProviderConfig"},
		{"an unknown field", good + "  matchImage: [x]\n", `unknown field "providers[0].matchImage"`},
		{"a field in another case", good + "  Args: [x]\n", `unknown field "providers[0].Args"`},
		{"a field twice", good + "  args: [x]\n", "already set"},
		{"no YAML", "\t", "yaml"},
		{"a duration that is none", swap("10m", "soon"), "invalid duration"},
		{"no providers", config("v1", " []"), "providers: Required"},
		{"no name", swap("name: get-it", `name: ""`), "providers[0].name: Required"},
		{"a path for a name", swap("get-it", "../get-it"), "providers[0].name: Invalid"},
		{"a space in a name", swap("get-it", "get it"), "providers[0].name: Invalid"},
		{"the directory for a name", swap("get-it", `".."`), "providers[0].name: Invalid"},
		{"a name twice", config("v1", goodProvider+goodProvider[1:]), `providers[1].name: Duplicate value: "get-it"`},
		{"no images", swap(`["*.example", "reg.example:5000/team"]`, "[]"), "providers[0].matchImages: Required"},
		{"a URL for an image", swap("*.example", "https://reg.example"), "providers[0].matchImages[0]: Invalid"},
		{"a port that is none", swap(":5000", ":x"), "providers[0].matchImages[1]: Invalid"},
		{"no cache duration", swap("  defaultCacheDuration: 10m\n", ""), "providers[0].defaultCacheDuration: Required"},
		{"a negative one", swap("10m", "-1s"), "providers[0].defaultCacheDuration: Invalid"},
		{"no version", swap("  apiVersion: credentialprovider.kubelet.k8s.io/v1\n", ""), "providers[0].apiVersion: Unsupported"},
		{"another group's version", swap("credentialprovider.kubelet.k8s.io/v1", "example.com/v1"), "providers[0].apiVersion: Unsupported"},
		{"a variable without a name", swap("REGION", `""`), "providers[0].env[0]: Invalid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := keyring.ParseProviders([]byte(tt.text))
			switch {
			case tt.err == "" && (err != nil || len(got) != 1):
				t.Errorf("ParseProviders = %v, %v", got, err)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("ParseProviders = %v, want %q in it", err, tt.err)
			}
		})
	}
}

func TestReadProviders(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	named := func(name string) string { return config("v1", strings.Replace(goodProvider, "get-it", name, 1)) }
	read := func(path string) string {
		t.Helper()
		all, err := keyring.ReadProviders(path)
		if err != nil {
			return err.Error()
		}
		var names []string
		for _, p := range all {
			names = append(names, p.Name)
		}
		return strings.Join(names, " ")
	}
	if got := read(dir); !strings.HasSuffix(got, "has no *.json, *.yaml or *.yml") {
		t.Errorf("an empty directory: %s", got)
	}
	b := write("b.yaml", named("second"))
	write("a.yml", named("first"))
	write("c.json", `{"apiVersion":"kubelet.config.k8s.io/v1","kind":"CredentialProviderConfig","providers":[{"name":"third","matchImages":["a"],"defaultCacheDuration":"0s","apiVersion":"credentialprovider.kubelet.k8s.io/v1"}]}`)
	write("README", "not a configuration")
	write("below/d.yaml", "nor this")
	if err := os.Mkdir(filepath.Join(dir, "e.yaml"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := read(dir); got != "first second third" {
		t.Errorf("a directory: %s", got)
	}
	if got := read(b); got != "second" {
		t.Errorf("a file: %s", got)
	}
	write("d.yaml", named("first"))
	if got := read(dir); got != "read credential providers: "+dir+`: providers[3].name: Duplicate value: "first"` {
		t.Errorf("one name in two files: %s", got)
	}
	bad := write("d.yaml", "kind: x")
	if got := read(dir); !strings.HasPrefix(got, "read credential providers: "+bad+": kind x") {
		t.Errorf("a bad file: %s", got)
	}
	if got := read(filepath.Join(dir, "gone")); !strings.Contains(got, "no such file") {
		t.Errorf("no file: %s", got)
	}
}
