package keyring

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Entry is one line of a docker config: what to show to images that match Key.
type Entry struct {
	Key  string
	Auth *runtimeapi.AuthConfig
}

// ParseConfigJSON reads the form of ~/.docker/config.json and of secrets of type
// kubernetes.io/dockerconfigjson. Entries come in the order of their keys; those
// without any credential, as a credential helper leaves them, are not there. An
// error never has a part of a credential in it.
func ParseConfigJSON(data []byte) ([]Entry, error) {
	var file struct {
		Auths map[string]*dockerAuth `json:"auths"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("parse docker config.json: %w", err)
	}
	return entries(file.Auths)
}

// ParseDockercfg reads the older form, that of ~/.dockercfg and of secrets of
// type kubernetes.io/dockercfg, in which the registries are the topmost keys.
func ParseDockercfg(data []byte) ([]Entry, error) {
	var auths map[string]*dockerAuth
	if err := json.Unmarshal(data, &auths); err != nil {
		return nil, fmt.Errorf("parse .dockercfg: %w", err)
	}
	return entries(auths)
}

// dockerAuth is docker's types.AuthConfig, in so far as a runtime can use it.
type dockerAuth struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

func entries(auths map[string]*dockerAuth) ([]Entry, error) {
	var all []Entry
	for _, key := range slices.Sorted(maps.Keys(auths)) {
		a := auths[key]
		if a == nil {
			continue
		}
		if strings.TrimSpace(a.Auth) != "" {
			var err error
			if a.Username, a.Password, err = decodeAuth(a.Auth); err != nil {
				return nil, fmt.Errorf("registry %q: field auth: %w", shown(key), err)
			}
		}
		if a.Username == "" && a.Password == "" && a.IdentityToken == "" && a.RegistryToken == "" {
			continue
		}
		all = append(all, Entry{Key: key, Auth: &runtimeapi.AuthConfig{
			Username: a.Username, Password: a.Password,
			IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken,
		}})
	}
	return all, nil
}

// decodeAuth reads base64(user:password), padded or not. Old versions of docker
// filled the password up with zero bytes.
func decodeAuth(auth string) (user, password string, err error) {
	plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(auth), "="))
	if err != nil {
		return "", "", errors.New("not base64")
	}
	user, password, ok := strings.Cut(string(plain), ":")
	if !ok {
		return "", "", errors.New("not base64 of user:password")
	}
	return user, strings.TrimRight(password, "\x00"), nil
}
