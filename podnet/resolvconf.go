package podnet

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// maxResolvConf bounds the host's file.
const maxResolvConf = 10 << 20

// settings are a resolv.conf. An option is name or name:value.
type settings struct{ servers, searches, options []string }

// parse reads a resolv.conf as resolv.conf(5) has it, as far as pods inherit from
// it. Other keywords are passed over, and so is what begins with # or ;.
func parse(file string) (settings, error) {
	var s settings
	line := 0
	for text := range strings.SplitSeq(file, "\n") {
		line++
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		switch values := fields[1:]; fields[0] {
		case "nameserver":
			if len(values) == 0 {
				return settings{}, fmt.Errorf("line %d: nameserver without an address", line)
			}
			s.servers = append(s.servers, values[0])
		case "search":
			s.searches = nil // the last line counts
			for _, domain := range values {
				if domain = strings.TrimSuffix(domain, "."); domain != "" {
					s.searches = append(s.searches, domain)
				}
			}
		case "options":
			s.options = mergeOptions(s.options, values)
		}
	}
	return s, nil
}

// host reads the host's file. Without one there is nothing to inherit.
func (n *Net) host() (settings, error) {
	if n.cfg.ResolvConf == "" {
		return settings{}, nil
	}
	f, err := os.Open(n.cfg.ResolvConf)
	if err != nil {
		return settings{}, fmt.Errorf("read the host's DNS settings: %w (the node's setting resolvConf names the file)", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxResolvConf+1))
	var s settings
	switch {
	case err != nil:
	case len(data) > maxResolvConf:
		err = fmt.Errorf("it has more than %d bytes", maxResolvConf)
	default:
		s, err = parse(string(data))
	}
	if err != nil {
		return settings{}, fmt.Errorf("read the host's DNS settings from %s: %w", n.cfg.ResolvConf, err)
	}
	return s, nil
}

// clusterSearches is how many search domains ClusterFirst puts before the host's.
const clusterSearches = 3

// CheckResolvConf looks at the host's file as pods will: what can't be read, and what
// is more than fits beside the cluster's search domains. It is for the start. The
// event says the same; a node can go on in spite of it.
func (n *Net) CheckResolvConf() error {
	s, err := n.host()
	if err == nil {
		most := maxSearches
		if n.cfg.ClusterDomain != "" {
			most -= clusterSearches
		}
		if err = checkSearches(s.searches, most); err != nil {
			err = fmt.Errorf("check the host's DNS settings in %s: %w", n.cfg.ResolvConf, err)
		}
	}
	if err != nil {
		n.warn(nil, ReasonResolvConf, err.Error())
	}
	for _, server := range s.servers {
		if ip, err := netip.ParseAddr(server); err == nil && ip.IsLoopback() {
			n.cfg.Log.Info("a name server that pods inherit is on the host's loopback address, where they do not reach it; with systemd-resolved, set resolvConf to /run/systemd/resolve/resolv.conf",
				"resolvConf", n.cfg.ResolvConf, "nameserver", server)
		}
	}
	return err
}

func checkSearches(searches []string, most int) error {
	var errs []error
	if len(searches) > most {
		errs = append(errs, fmt.Errorf("the search line has %d domains, pods get the first %d", len(searches), most))
	}
	if slices.ContainsFunc(searches, func(domain string) bool { return len(domain) > maxSearch }) {
		errs = append(errs, fmt.Errorf("the search line has a domain of more than %d characters, which pods do not get", maxSearch))
	}
	if n := len(strings.Join(searches, " ")); n > maxSearchLine {
		errs = append(errs, fmt.Errorf("the search line has %d characters, pods get the domains within the first %d", n, maxSearchLine))
	}
	return errors.Join(errs...)
}
