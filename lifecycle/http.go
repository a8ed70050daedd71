package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// mostBody is how much of an answer is read. A server that gets rid of its answer
// sees no broken connection; who sends more than this cannot hold the hook up.
const mostBody = 10 << 10

// get asks once, and a second time in plain HTTP when that is what an HTTPS hook
// was answered with. There are pods from the time when nodes ignored the scheme.
func (r *Runner) get(ctx context.Context, call Call) error {
	req, err := r.request(ctx, call)
	if err != nil {
		return fmt.Errorf("make request of hook: %w", err)
	}
	err = r.ask(req)
	if !errors.Is(err, http.ErrSchemeMismatch) || req.URL.Scheme != "https" {
		return err
	}
	r.cfg.Log.V(1).Info("HTTPS hook was answered in plain HTTP", "containerID", string(call.ID))
	plain := req.Clone(ctx)
	plain.URL.Scheme = "http"
	plain.Header.Del("Authorization") // it was meant for an encrypted connection
	if err := r.ask(plain); err != nil {
		return err
	}
	r.cfg.Hooks.FellBack(call)
	r.cfg.Hooks.Event(call, corev1.EventTypeWarning, "LifecycleHTTPFallback",
		fmt.Sprintf("HTTPS hook was answered in plain HTTP by %s and has been sent again without encryption; set the scheme to HTTP", req.URL.Host))
	return nil
}

func (r *Runner) ask(req *http.Request) error {
	resp, err := r.client.Do(req)
	if err != nil {
		return fmt.Errorf("send request of hook: %w", err)
	}
	defer resp.Body.Close()
	// That it answered is enough. What it said is of no interest.
	io.CopyN(io.Discard, resp.Body, mostBody) //nolint:errcheck
	return nil
}

// withinHost lets a redirect change anything but the host: a pod must not make
// its node call others. The answer that wants to is taken as the last one.
func withinHost(next *http.Request, before []*http.Request) error {
	const most = 10
	switch {
	case next.URL.Hostname() != before[0].URL.Hostname():
		return http.ErrUseLastResponse
	case len(before) >= most:
		return fmt.Errorf("%d redirects are enough", most)
	}
	return nil
}

func (r *Runner) request(ctx context.Context, call Call) (*http.Request, error) {
	action := call.Handler.HTTPGet
	host := action.Host
	if host == "" {
		host = call.PodIP
	}
	if host == "" {
		return nil, errors.New("the pod has no address, and the hook names no host")
	}
	port, err := portNumber(action.Port, call.Container)
	if err != nil {
		return nil, err
	}
	// Only the path and the query are taken from what looks like a whole URL. What
	// is no URL is a path as it stands.
	target := &url.URL{Scheme: "http", Path: action.Path}
	if u, err := url.Parse(action.Path); err == nil && u.Opaque == "" {
		target.Path, target.RawPath, target.RawQuery = u.Path, u.RawPath, u.RawQuery
	}
	if action.Scheme == corev1.URISchemeHTTPS {
		target.Scheme = "https"
	}
	target.Host = net.JoinHostPort(host, strconv.Itoa(port))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	r.setHeader(req, action.HTTPHeaders)
	return req, nil
}

// setHeader takes the headers as they are given, repeated ones too. An Accept
// that is given empty is sent to nobody.
func (r *Runner) setHeader(req *http.Request, given []corev1.HTTPHeader) {
	for _, h := range given {
		req.Header.Add(h.Name, h.Value)
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	req.Header.Del("Host")
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", r.cfg.UserAgent)
	}
	if accept, ok := req.Header["Accept"]; !ok {
		req.Header.Set("Accept", "*/*")
	} else if accept[0] == "" {
		req.Header.Del("Accept")
	}
}

// portNumber finds a port that is given by its name in the container.
func portNumber(port intstr.IntOrString, c *corev1.Container) (int, error) {
	n := port.IntValue() // a number in a string is a number, too
	if port.Type == intstr.String && c != nil {
		for _, p := range c.Ports {
			if p.Name == port.StrVal {
				n = int(p.ContainerPort)
			}
		}
	}
	if n < 1 || n > 65535 {
		return 0, fmt.Errorf("port %q is neither a number from 1 to 65535 nor the name of a port of the container", port.String())
	}
	return n, nil
}
