package keyring

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kubelet/config/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// The versions of the configuration file and of the protocol of plug-ins. The
// three differ only in that tokenAttributes came with v1.
const (
	configGroup   = "kubelet.config.k8s.io/"
	protocolGroup = "credentialprovider.kubelet.k8s.io/"
)

func isVersionOf(group, apiVersion string) bool {
	version, ok := strings.CutPrefix(apiVersion, group)
	return ok && slices.Contains([]string{"v1", "v1beta1", "v1alpha1"}, version)
}

// ReadProviders reads a CredentialProviderConfig, as YAML or JSON: a file, or all
// the *.json, *.yaml and *.yml of a directory in the order of their names. A field
// that is not known is an error, as is anything that [New] would not accept.
func ReadProviders(path string) ([]configv1.CredentialProvider, error) {
	files, err := providerFiles(path)
	if err != nil {
		return nil, fmt.Errorf("read credential providers: %w", err)
	}
	var all []configv1.CredentialProvider
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read credential providers: %w", err)
		}
		providers, err := ParseProviders(data)
		if err != nil {
			return nil, fmt.Errorf("read credential providers: %s: %w", file, err)
		}
		all = append(all, providers...)
	}
	// Once more, for names that two files have.
	if err := validate(all); err != nil {
		return nil, fmt.Errorf("read credential providers: %s: %w", path, err)
	}
	return all, nil
}

func providerFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	inside, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range inside {
		name := filepath.Join(path, e.Name())
		if !slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(name)) {
			continue
		}
		if info, err := os.Stat(name); err != nil {
			return nil, err
		} else if !info.IsDir() {
			files = append(files, name)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no *.json, *.yaml or *.yml", path)
	}
	return files, nil
}

// ParseProviders is [ReadProviders] of one file's content.
func ParseProviders(data []byte) ([]configv1.CredentialProvider, error) {
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, err
	}
	var cfg configv1.CredentialProviderConfig
	if err := json.Unmarshal(text, &cfg.TypeMeta); err != nil {
		return nil, err
	}
	if cfg.Kind != "CredentialProviderConfig" || !isVersionOf(configGroup, cfg.APIVersion) {
		return nil, fmt.Errorf("kind %s of %s: want CredentialProviderConfig of %sv1, v1beta1 or v1alpha1", cfg.Kind, cfg.APIVersion, configGroup)
	}
	unknown, err := kjson.UnmarshalStrict(text, &cfg)
	if err = errors.Join(append(unknown, err)...); err != nil {
		return nil, err
	}
	if len(cfg.Providers) == 0 {
		return nil, field.Required(field.NewPath("providers"), "at least 1 item")
	}
	if !strings.HasSuffix(cfg.APIVersion, "/v1") {
		for i := range cfg.Providers {
			if cfg.Providers[i].TokenAttributes != nil {
				return nil, field.Forbidden(field.NewPath("providers").Index(i).Child("tokenAttributes"), "the file must be of "+configGroup+"v1")
			}
		}
	}
	return cfg.Providers, validate(cfg.Providers)
}

func validate(providers []configv1.CredentialProvider) error {
	var errs field.ErrorList
	names := map[string]bool{}
	for i := range providers {
		p, at := &providers[i], field.NewPath("providers").Index(i)
		if names[p.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
		}
		names[p.Name] = true
		errs = append(errs, validateProvider(p, at)...)
	}
	return errs.ToAggregate()
}

func validateProvider(p *configv1.CredentialProvider, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch name := p.Name; {
	case name == "":
		errs = append(errs, field.Required(at.Child("name"), "the plug-in's file name"))
	case name == ".", name == "..", strings.ContainsAny(name, "/\\ \t\n"):
		errs = append(errs, field.Invalid(at.Child("name"), name, "must be a file name without spaces"))
	}
	if !isVersionOf(protocolGroup, p.APIVersion) {
		errs = append(errs, field.NotSupported(at.Child("apiVersion"), p.APIVersion,
			[]string{protocolGroup + "v1", protocolGroup + "v1beta1", protocolGroup + "v1alpha1"}))
	}
	if len(p.MatchImages) == 0 {
		errs = append(errs, field.Required(at.Child("matchImages"), "at least 1 item"))
	}
	for i, m := range p.MatchImages {
		if _, err := parseKey(m); err != nil || strings.Contains(m, "://") {
			errs = append(errs, field.Invalid(at.Child("matchImages").Index(i), m, "want host[:port][/path], without a scheme"))
		}
	}
	switch d := p.DefaultCacheDuration; {
	case d == nil:
		errs = append(errs, field.Required(at.Child("defaultCacheDuration"), "0s is no caching"))
	case d.Duration < 0:
		errs = append(errs, field.Invalid(at.Child("defaultCacheDuration"), d.Duration.String(), "must not be negative"))
	}
	for i, e := range p.Env {
		if e.Name == "" || strings.ContainsAny(e.Name, "=\x00") || strings.Contains(e.Value, "\x00") {
			errs = append(errs, field.Invalid(at.Child("env").Index(i), e.Name, "not the name of an environment variable"))
		}
	}
	if p.TokenAttributes != nil {
		at := at.Child("tokenAttributes")
		if p.APIVersion != protocolGroup+"v1" {
			errs = append(errs, field.Forbidden(at, "the plug-in must speak "+protocolGroup+"v1"))
		}
		errs = append(errs, validateTokens(p.TokenAttributes, at)...)
	}
	return errs
}

func validateTokens(a *configv1.ServiceAccountTokenAttributes, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if a.ServiceAccountTokenAudience == "" {
		errs = append(errs, field.Required(at.Child("serviceAccountTokenAudience"), ""))
	}
	switch a.CacheType {
	case configv1.TokenServiceAccountTokenCacheType, configv1.ServiceAccountServiceAccountTokenCacheType:
	default:
		errs = append(errs, field.NotSupported(at.Child("cacheType"), a.CacheType, []configv1.ServiceAccountTokenCacheType{
			configv1.ServiceAccountServiceAccountTokenCacheType, configv1.TokenServiceAccountTokenCacheType,
		}))
	}
	if a.RequireServiceAccount == nil {
		errs = append(errs, field.Required(at.Child("requireServiceAccount"), ""))
	} else if !*a.RequireServiceAccount && len(a.RequiredServiceAccountAnnotationKeys) > 0 {
		errs = append(errs, field.Forbidden(at.Child("requiredServiceAccountAnnotationKeys"), "needs requireServiceAccount"))
	}
	seen := map[string]bool{}
	for _, list := range []struct {
		name string
		keys []string
	}{
		{"requiredServiceAccountAnnotationKeys", a.RequiredServiceAccountAnnotationKeys},
		{"optionalServiceAccountAnnotationKeys", a.OptionalServiceAccountAnnotationKeys},
	} {
		for i, key := range list.keys {
			at := at.Child(list.name).Index(i)
			for _, wrong := range validation.IsQualifiedName(strings.ToLower(key)) {
				errs = append(errs, field.Invalid(at, key, wrong))
			}
			if seen[key] {
				errs = append(errs, field.Duplicate(at, key))
			}
			seen[key] = true
		}
	}
	return errs
}
