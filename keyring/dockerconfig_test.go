package keyring_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeletkit/kubeletkit/keyring"
)

func lines(all []keyring.Entry) []string {
	var out []string
	for _, e := range all {
		out = append(out, fmt.Sprintf("%s %s:%s %s%s", e.Key, e.Auth.Username, e.Auth.Password, e.Auth.IdentityToken, e.Auth.RegistryToken))
	}
	return out
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func TestParseConfigJSON(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
		err        string
	}{
		{"user and password", `{"auths":{"a.example":{"username":"u","password":"p","email":"e"}}}`, []string{"a.example u:p "}, ""},
		{"auth", `{"auths":{"a.example":{"auth":"` + b64("u:p") + `"}}}`, []string{"a.example u:p "}, ""},
		{"auth without padding", `{"auths":{"a.example":{"auth":"` + strings.TrimRight(b64("u:pw"), "=") + `"}}}`, []string{"a.example u:pw "}, ""},
		{"auth that needs no padding", `{"auths":{"a.example":{"auth":"` + b64("us:pwd") + `"}}}`, []string{"a.example us:pwd "}, ""},
		{"auth goes before user and password", `{"auths":{"a.example":{"username":"x","password":"y","auth":"` + b64("u:p") + `"}}}`, []string{"a.example u:p "}, ""},
		{"auth with space around it", `{"auths":{"a.example":{"auth":" ` + b64("u:p") + `\n"}}}`, []string{"a.example u:p "}, ""},
		{"auth of an old docker", `{"auths":{"a.example":{"auth":"` + b64("u:p\x00\x00\x00") + `"}}}`, []string{"a.example u:p "}, ""},
		{"a password with colons", `{"auths":{"a.example":{"auth":"` + b64("u:p:q") + `"}}}`, []string{"a.example u:p:q "}, ""},
		{"an identity token", `{"auths":{"a.example":{"auth":"` + b64("<token>:") + `","identitytoken":"T"}}}`, []string{"a.example <token>: T"}, ""},
		{"a registry token", `{"auths":{"a.example":{"registrytoken":"R"}}}`, []string{"a.example : R"}, ""},
		{"entries of a credential helper are none", `{"auths":{"a.example":{},"b.example":null},"credsStore":"desktop"}`, nil, ""},
		{"other fields are docker's own business", `{"HttpHeaders":{"X":"y"},"psFormat":"z"}`, nil, ""},
		{"keys in order", `{"auths":{"b":{"username":"u"},"a":{"username":"u"}}}`, []string{"a u: ", "b u: "}, ""},
		{"an empty object", `{}`, nil, ""},
		{"nothing", ``, nil, "unexpected end of JSON input"},
		{"no object", `[]`, nil, "cannot unmarshal array"},
		{"not base64", `{"auths":{"a.example":{"auth":"s3cret!"}}}`, nil, `registry "a.example": field auth: not base64`},
		{"no colon", `{"auths":{"a.example":{"auth":"` + b64("s3cret") + `"}}}`, nil, `registry "a.example": field auth: not base64 of user:password`},
		{"a password in the key", `{"auths":{"https://me:s3cret@a.example":{"auth":"!"}}}`, nil, `registry "...@a.example": field auth: not base64`},
		{"a list of registries", `{"auths":["s3cret"]}`, nil, "cannot unmarshal array"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := keyring.ParseConfigJSON([]byte(tt.text))
			if diff := cmp.Diff(tt.want, lines(got)); diff != "" {
				t.Error(diff)
			}
			if fmt.Sprint(err) == "<nil>" != (tt.err == "") || tt.err != "" && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error = %v, want %q", err, tt.err)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("error %q gives away what is in the file", err)
			}
		})
	}
}

func TestParseDockercfg(t *testing.T) {
	got, err := keyring.ParseDockercfg([]byte(`{"https://index.docker.io/v1/":{"auth":"` + b64("u:p") + `","email":"e"},"b":{"username":"x","password":"y"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"b x:y ", "https://index.docker.io/v1/ u:p "}, lines(got)); diff != "" {
		t.Error(diff)
	}
	if _, err := keyring.ParseDockercfg([]byte(`{"a": 3}`)); err == nil {
		t.Error("a number passed for a registry")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"auths":{"a.example":{"auth":"dTpw"}}}`, `{"a.example":{"username":"u","password":"p"}}`, `{"auths":{"":{"auth":"=="}}}`, `{}`, ``, `null`, `{"auths":null}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, parse := range []func([]byte) ([]keyring.Entry, error){keyring.ParseConfigJSON, keyring.ParseDockercfg} {
			all, err := parse(data)
			if err != nil && all != nil {
				t.Error("entries beside an error")
			}
			for _, e := range all {
				if e.Auth == nil || e.Auth.Username+e.Auth.Password+e.Auth.IdentityToken+e.Auth.RegistryToken == "" {
					t.Errorf("entry %q has no credential", e.Key)
				}
			}
		}
		if providers, err := keyring.ParseProviders(data); err == nil {
			if _, err := json.Marshal(providers); err != nil || len(providers) == 0 {
				t.Errorf("%d providers were accepted: %v", len(providers), err)
			}
		}
	})
}
