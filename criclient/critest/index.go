package critest

// index finds the members of a group without looking at the others. It is what
// makes a filtered list cost what it matches.
type index[K, V comparable] map[K]map[V]struct{}

func (x index[K, V]) add(key K, v V) {
	group := x[key]
	if group == nil {
		group = map[V]struct{}{}
		x[key] = group
	}
	group[v] = struct{}{}
}

func (x index[K, V]) remove(key K, v V) {
	group := x[key]
	delete(group, v)
	if len(group) == 0 {
		delete(x, key)
	}
}

// ipPool hands out addresses of 10.88.0.0/16 in turn, as host-local IPAM does,
// so that a released address comes back late.
type ipPool struct {
	last int
	used map[int]bool
}

// Network, gateway and broadcast addresses are not given out.
const (
	firstHost = 2
	lastHost  = 1<<16 - 2
)

func (p *ipPool) take() (host int, ok bool) {
	if len(p.used) > lastHost-firstHost {
		return 0, false
	}
	for {
		p.last++
		if p.last < firstHost || p.last > lastHost {
			p.last = firstHost
		}
		if !p.used[p.last] {
			p.used[p.last] = true
			return p.last, true
		}
	}
}

func (p *ipPool) release(host int) { delete(p.used, host) }
