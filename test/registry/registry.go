// Package registry is an image registry on loopback, in process, whose traffic
// a test can count, slow down and break.
//
//   - In: images pushed by anyone; they live in memory. A [Guard], if it shall
//     know whom it serves.
//   - Out: the registry protocol at [Registry.Host]; what was asked, and by whom.
//   - Owns: one listener and the goroutines that serve it, until Close.
//   - Rooms: images pushes here, a container runtime pulls from here.
package registry

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// Registry serves until [Registry.Close].
type Registry struct {
	host   string
	server *http.Server
	wg     sync.WaitGroup

	mu struct {
		sync.Mutex
		asked map[string]Count
		fault func(*http.Request) Fault
		guard Guard
		tried map[string][]string // by repository
		// tokens are those that were given out, and the repository each is for.
		tokens map[string]string
	}
}

// Count is what clients read from one repository. Uploads are not counted.
type Count struct {
	// Manifests counts GET and HEAD of manifests: at least one for each pull.
	Manifests int
	// Blobs counts GET of blobs: none when the client had them.
	Blobs int
}

// Fault says what happens to one request. The zero value is no fault.
type Fault struct {
	// Delay comes before anything else; a client that goes away ends it.
	Delay time.Duration
	// Status, when not 0, is the whole answer.
	Status int
	// PerSecond, when not 0, is the number of bytes a second of the answer.
	PerSecond int
	// Lie changes the last byte of the answer, so that its digest is wrong.
	Lie bool
}

// Start listens on addr, such as "127.0.0.1:0", and serves at once.
func Start(addr string) (*Registry, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("start registry: %w", err)
	}
	r := &Registry{host: l.Addr().String()}
	r.mu.asked = map[string]Count{}
	r.mu.tried = map[string][]string{}
	r.mu.tokens = map[string]string{}
	quiet := log.New(io.Discard, "", 0)
	store := registry.New(registry.Logger(quiet))
	r.server = &http.Server{
		ErrorLog: quiet,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			r.serve(store, w, req)
		}),
	}
	r.wg.Go(func() { _ = r.server.Serve(l) }) // always ErrServerClosed, by Close
	return r, nil
}

// Host is the "address:port" part of image references.
func (r *Registry) Host() string { return r.host }

// Close ends all requests and returns when nothing serves any more.
func (r *Registry) Close() error {
	err := r.server.Close()
	r.wg.Wait()
	return err
}

// Asked returns what was read so far from one repository, such as "kk".
func (r *Registry) Asked(repository string) Count {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.asked[repository]
}

// Break lets fault decide about every request from now on; nil heals.
func (r *Registry) Break(fault func(*http.Request) Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.fault = fault
}

func (r *Registry) serve(store http.Handler, w http.ResponseWriter, req *http.Request) {
	f := r.note(req)
	if f.Delay > 0 {
		select {
		case <-time.After(f.Delay):
		case <-req.Context().Done():
			return
		}
	}
	if f.Status != 0 {
		http.Error(w, "broken on purpose", f.Status)
		return
	}
	if !r.admits(w, req) {
		return
	}
	if f.Lie {
		answer := &recorder{header: w.Header(), status: http.StatusOK}
		store.ServeHTTP(answer, req)
		answer.lie(w)
		return
	}
	if f.PerSecond > 0 {
		w = &slowWriter{ResponseWriter: w, req: req, perSecond: f.PerSecond}
	}
	store.ServeHTTP(w, req)
}

// note counts a request and asks what shall happen to it.
func (r *Registry) note(req *http.Request) Fault {
	r.mu.Lock()
	if repository, kind, ok := split(req.URL.Path); ok {
		c := r.mu.asked[repository]
		switch {
		case kind == "manifests" && (req.Method == http.MethodGet || req.Method == http.MethodHead):
			c.Manifests++
		case kind == "blobs" && req.Method == http.MethodGet:
			c.Blobs++
		}
		r.mu.asked[repository] = c
	}
	fault := r.mu.fault
	r.mu.Unlock()
	if fault == nil {
		return Fault{}
	}
	return fault(req)
}

// split takes /v2/<repository>/<kind>/<reference> apart; a repository may
// contain slashes.
func split(path string) (repository, kind string, ok bool) {
	rest, ok := strings.CutPrefix(path, "/v2/")
	if !ok {
		return "", "", false
	}
	for _, kind := range []string{"manifests", "blobs"} {
		if i := strings.LastIndex(rest, "/"+kind+"/"); i > 0 {
			return rest[:i], kind, true
		}
	}
	return "", "", false
}

// recorder keeps an answer to change it.
type recorder struct {
	header http.Header
	status int
	body   []byte
}

func (a *recorder) Header() http.Header    { return a.header }
func (a *recorder) WriteHeader(status int) { a.status = status }
func (a *recorder) Write(p []byte) (int, error) {
	a.body = append(a.body, p...)
	return len(p), nil
}

func (a *recorder) lie(w http.ResponseWriter) {
	if len(a.body) > 0 {
		a.body[len(a.body)-1] ^= 1
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // the client may have gone
}

// slowWriter hands on a tenth of a second's worth of bytes at a time.
type slowWriter struct {
	http.ResponseWriter
	req       *http.Request
	perSecond int
}

func (w *slowWriter) Write(p []byte) (int, error) {
	piece := max(1, w.perSecond/10)
	written := 0
	for len(p) > 0 {
		n, err := w.ResponseWriter.Write(p[:min(piece, len(p))])
		written += n
		if err != nil {
			return written, err
		}
		p = p[n:]
		if f, ok := w.ResponseWriter.(http.Flusher); ok {
			f.Flush()
		}
		select {
		case <-time.After(time.Second / 10):
		case <-w.req.Context().Done():
			return written, w.req.Context().Err()
		}
	}
	return written, nil
}
