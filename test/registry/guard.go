package registry

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Guard makes a registry ask who is there. Without Allow it asks nobody.
type Guard struct {
	// Allow decides who may use a repository. Nobody is asked for one that it
	// allows to the user "" without a password.
	Allow func(user, password, repository string) bool
	// Token lets clients show name and password to a token service, as most public
	// registries do; else they come with each request.
	Token bool
}

// Guard replaces the registry's guard. Tokens that were given out end.
func (r *Registry) Guard(g Guard) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.guard = g
	clear(r.mu.tokens)
}

// Tried returns the user names that were shown for a repository, in order and each
// once in a row; one that was refused has a ! before it.
func (r *Registry) Tried(repository string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.mu.tried[repository])
}

// admits reports whether a request may go on; else it has been answered.
func (r *Registry) admits(w http.ResponseWriter, req *http.Request) bool {
	r.mu.Lock()
	guard := r.mu.guard
	r.mu.Unlock()
	if guard.Allow == nil {
		return true
	}
	if req.URL.Path == "/token" {
		r.giveToken(guard, w, req)
		return false
	}
	repository, _, ok := split(req.URL.Path)
	if ok && guard.Allow("", "", repository) {
		return true
	}
	if guard.Token {
		if token, has := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer "); has && r.isFor(token, repository) {
			return true
		}
		challenge := fmt.Sprintf(`Bearer realm="http://%s/token",service="kubeletkit test"`, r.host)
		if ok {
			challenge += fmt.Sprintf(`,scope="repository:%s:pull"`, repository)
		}
		refuse(w, challenge)
		return false
	}
	user, password, has := req.BasicAuth()
	if has && (!ok || r.allows(guard, user, password, repository)) {
		return true
	}
	refuse(w, `Basic realm="kubeletkit test"`)
	return false
}

func refuse(w http.ResponseWriter, challenge string) {
	w.Header().Set("WWW-Authenticate", challenge)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnauthorized)
	fmt.Fprint(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`)
}

// allows asks the guard and notes who it was.
func (r *Registry) allows(guard Guard, user, password, repository string) bool {
	ok := guard.Allow(user, password, repository)
	if !ok {
		user = "!" + user
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if before := r.mu.tried[repository]; len(before) == 0 || before[len(before)-1] != user {
		r.mu.tried[repository] = append(before, user)
	}
	return ok
}

func (r *Registry) isFor(token, repository string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	of, ok := r.mu.tokens[token]
	return ok && (repository == "" || of == repository)
}

// giveToken is the token service: by GET with basic authentication, and by POST of
// a form (OAuth 2).
func (r *Registry) giveToken(guard Guard, w http.ResponseWriter, req *http.Request) {
	user, password, _ := req.BasicAuth()
	if req.Method == http.MethodPost {
		user, password = req.PostFormValue("username"), req.PostFormValue("password")
	}
	repository := ""
	for _, scope := range strings.Fields(req.FormValue("scope")) {
		if parts := strings.Split(scope, ":"); len(parts) == 3 && parts[0] == "repository" {
			repository = parts[1]
		}
	}
	if !r.allows(guard, user, password, repository) {
		refuse(w, `Basic realm="kubeletkit test"`)
		return
	}
	token := rand.Text()
	r.mu.Lock()
	r.mu.tokens[token] = repository
	r.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"token": token, "access_token": token, "expires_in": 300})
}
