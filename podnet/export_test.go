package podnet

import corev1 "k8s.io/api/core/v1"

// Settings are a resolv.conf, for the tables.
type Settings struct{ Servers, Searches, Options []string }

// Parse reads a resolv.conf.
func Parse(file string) (Settings, error) {
	s, err := parse(file)
	return Settings{s.servers, s.searches, s.options}, err
}

// Merge adds a pod's own settings.
func Merge(s Settings, own *corev1.PodDNSConfig) Settings {
	m := merge(settings{s.Servers, s.Searches, s.Options}, own)
	return Settings{m.servers, m.searches, m.options}
}

// Limit leaves out what resolvers do not take.
func Limit(s Settings) (Settings, []string) {
	l, cuts := limit(settings{s.Servers, s.Searches, s.Options})
	return Settings{l.servers, l.searches, l.options}, cuts
}
