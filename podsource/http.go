package podsource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
)

// HTTPConfig says where to fetch a manifest.
type HTTPConfig struct {
	URL      string      // http or https; required
	Header   http.Header // sent with every request
	NodeName string      // required
	// Every is the time between two requests; default 20s.
	Every time.Duration
	// Client makes the requests, for TLS and proxies of the embedder's own;
	// default is a plain one. Redirects follow this room's rule in any case.
	Client *http.Client
	// Objects takes the ConfigMaps and Secrets of the manifest. Without it they
	// are faults, and so are pods that refer to any.
	Objects *Objects
	Log     logr.Logger // default discards
}

const (
	requestTimeout = 10 * time.Second
	// loudFailures is how many failures in a row are logged as errors: the
	// manifest's server may be down for days.
	loudFailures = 3
)

// HTTP is the [Source] of pods in a manifest behind a URL, and of the [Objects]
// beside them.
//
// Only an answer 200 that is wholly good changes the set; an answer 200 without
// a body is the empty set, with an error. Requests are conditional where the
// server gives an ETag or a Last-Modified. A redirect to another host, or from
// https to http, is not followed: what runs on the node is decided by the host
// that was configured.
type HTTP struct {
	cfg     HTTPConfig
	client  *http.Client
	origin  Origin
	objects *objectSource // nil without Objects

	// Touched only by the goroutine in Run.
	etag, modified string
	body           []byte // of the last answer 200
	verdict        error  // on that body; an unchanged one has the same
	failures       int    // in a row

	last struct {
		sync.Mutex
		err error
	}
}

// NewHTTP checks cfg and returns a source that has not started.
func NewHTTP(cfg HTTPConfig) (*HTTP, error) {
	at, err := url.Parse(cfg.URL)
	if err != nil {
		var why *url.Error // names the URL, and with it maybe a password
		if errors.As(err, &why) {
			err = why.Err
		}
		return nil, fmt.Errorf("podsource: parse manifest URL: %w", err)
	}
	if at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
		return nil, fmt.Errorf("podsource: manifest URL %q: want http://host/path or https://host/path", at.Redacted())
	}
	if cfg.NodeName == "" {
		return nil, errors.New("podsource: HTTPConfig needs NodeName")
	}
	if cfg.Every <= 0 {
		cfg.Every = 20 * time.Second
	}
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	// The password in a URL is no part of the pods' identity, and no error's.
	h := &HTTP{cfg: cfg, origin: Origin{Kind: SourceHTTP, Name: at.Redacted(), Node: cfg.NodeName}}
	if cfg.Client != nil {
		own := *cfg.Client
		h.client = &own
	} else {
		h.client = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	}
	h.client.CheckRedirect = sameHost
	h.objects = cfg.Objects.join()
	return h, nil
}

func sameHost(next *http.Request, via []*http.Request) error {
	from := via[len(via)-1].URL
	switch {
	case len(via) >= 10:
		return errors.New("more than 10 redirects")
	case next.URL.Host != from.Host:
		return fmt.Errorf("redirect to another host, %s, is not followed", next.URL.Host)
	case from.Scheme == "https" && next.URL.Scheme != "https":
		return errors.New("redirect from https to http is not followed")
	}
	return nil
}

// Name is [SourceHTTP].
func (h *HTTP) Name() string { return SourceHTTP }

// Err is what was wrong with the last request, or nil.
func (h *HTTP) Err() error {
	h.last.Lock()
	defer h.last.Unlock()
	return h.last.err
}

// Run fetches the manifest and gives set every change, until ctx ends.
func (h *HTTP) Run(ctx context.Context, set func([]*corev1.Pod)) error {
	if h.cfg.Client == nil {
		defer h.client.CloseIdleConnections()
	}
	tick := time.NewTicker(h.cfg.Every)
	defer tick.Stop()
	for {
		content, changed, err := h.fetch(ctx)
		if ctx.Err() != nil {
			return nil
		}
		h.note(err)
		if changed {
			h.objects.set(content.objectsOf(h.origin.Name)) // before the pods that use them
			set(content.Pods)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// note keeps and logs the outcome of a request.
func (h *HTTP) note(err error) {
	h.last.Lock()
	h.last.err = err
	h.last.Unlock()
	if err == nil {
		if h.failures > 0 {
			h.cfg.Log.Info("manifest URL is good again", "url", h.origin.Name)
		}
		h.failures = 0
		return
	}
	h.failures++
	if h.failures <= loudFailures {
		h.cfg.Log.Error(err, "manifest URL gave no good manifest; what it gave last keeps running", "url", h.origin.Name)
	} else {
		h.cfg.Log.V(1).Info("manifest URL still gives no good manifest", "url", h.origin.Name, "error", err.Error())
	}
}

// fetch makes one request. An empty body is a change and an error.
func (h *HTTP) fetch(ctx context.Context) (content *Manifest, changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := h.get(ctx)
	if err != nil {
		return nil, false, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified && h.body != nil:
		return nil, false, h.verdict
	case resp.StatusCode != http.StatusOK:
		return nil, false, fmt.Errorf("get %s: status %s", h.origin.Name, resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxManifest+1))
	if err != nil {
		return nil, false, fmt.Errorf("read %s: %w", h.origin.Name, err)
	}
	if len(body) > maxManifest {
		return nil, false, fmt.Errorf("%s: larger than %d bytes, the most a manifest may have", h.origin.Name, maxManifest)
	}
	h.etag, h.modified = resp.Header.Get("ETag"), resp.Header.Get("Last-Modified")
	if h.body != nil && bytes.Equal(body, h.body) {
		return nil, false, h.verdict
	}
	h.body = body
	if len(body) == 0 {
		h.verdict = fmt.Errorf("%s: empty answer; taken as no pods", h.origin.Name)
		return &Manifest{}, true, h.verdict
	}
	content, h.verdict = decode(body, h.origin, h.objects != nil)
	return content, h.verdict == nil, h.verdict
}

func (h *HTTP) get(ctx context.Context) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.cfg.URL, nil)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", h.origin.Name, err)
	}
	for key, values := range h.cfg.Header {
		req.Header[http.CanonicalHeaderKey(key)] = values
	}
	if h.etag != "" {
		req.Header.Set("If-None-Match", h.etag)
	}
	if h.modified != "" {
		req.Header.Set("If-Modified-Since", h.modified)
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("fetch manifest: %w", err) // it names method and URL
	}
	return resp, nil
}
