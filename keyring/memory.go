package keyring

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"strings"
	"sync"
	"time"

	configv1 "k8s.io/kubelet/config/v1"
)

// What a plug-in says its answer is good for.
const (
	perImage    = "Image"
	perRegistry = "Registry"
	perNode     = "Global"
)

const purgeEvery = 15 * time.Minute

// memory is what a plug-in said, for as long as it allowed, and who is asking it
// right now.
type memory struct {
	mu struct {
		sync.Mutex
		cache  map[cacheKey]cached
		runs   map[cacheKey]*run
		purged time.Time
	}
}

// cacheKey is what an answer is good for: an image, a registry or everything, and
// one identity.
type cacheKey struct {
	per, what string
	who       [sha256.Size]byte
}

type cached struct {
	entries []Entry
	until   time.Time
}

// run is one run of the program. waiting is guarded by memory's lock; the rest is
// written before done is closed.
type run struct {
	waiting int
	cancel  context.CancelFunc
	done    chan struct{}

	entries []Entry
	err     error
}

// remembered answers from memory, else from a run of the program, which callers
// with the same question share. The last caller to leave ends it.
func (p *plugin) remembered(ctx context.Context, repository string, who identity) ([]Entry, error) {
	digest := p.digest(who)
	registry, _, _ := strings.Cut(repository, "/")
	keys := []cacheKey{{perImage, repository, digest}, {perRegistry, registry, digest}, {perNode, "", digest}}
	p.mu.Lock()
	now := time.Now()
	p.purge(now)
	for _, key := range keys {
		if c, ok := p.mu.cache[key]; ok && now.Before(c.until) {
			p.mu.Unlock()
			return c.entries, nil
		}
	}
	one := p.mu.runs[keys[0]]
	if one == nil {
		runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		one = &run{cancel: cancel, done: make(chan struct{})}
		p.mu.runs[keys[0]] = one
		go p.ask(runCtx, one, keys, repository, who)
	}
	one.waiting++
	p.mu.Unlock()

	select {
	case <-one.done:
		return one.entries, one.err
	case <-ctx.Done():
	}
	p.mu.Lock()
	one.waiting--
	last := one.waiting == 0
	if last && p.mu.runs[keys[0]] == one {
		delete(p.mu.runs, keys[0]) // who comes now asks anew
	}
	p.mu.Unlock()
	if last {
		one.cancel()
		<-one.done
	}
	return nil, ctx.Err()
}

// ask runs the program once and keeps its answer if it may be kept. keys are
// those of an answer per image, per registry and for all.
func (p *plugin) ask(ctx context.Context, one *run, keys []cacheKey, repository string, who identity) {
	defer one.cancel()
	answer, err := p.run(ctx, repository, who)
	one.entries, one.err = answer.entries(), err

	p.mu.Lock()
	if p.mu.runs[keys[0]] == one {
		delete(p.mu.runs, keys[0])
	}
	keep := p.spec.DefaultCacheDuration.Duration
	if answer.CacheDuration != nil {
		keep = answer.CacheDuration.Duration
	}
	if err == nil && keep > 0 {
		for _, key := range keys {
			if key.per == answer.CacheKeyType {
				p.mu.cache[key] = cached{entries: one.entries, until: time.Now().Add(keep)}
			}
		}
	}
	p.mu.Unlock()
	close(one.done)
}

// purge drops what is no longer good. The lock is held.
func (p *plugin) purge(now time.Time) {
	if now.Sub(p.mu.purged) < purgeEvery {
		return
	}
	p.mu.purged = now
	for key, c := range p.mu.cache {
		if !now.Before(c.until) {
			delete(p.mu.cache, key)
		}
	}
}

// digest tells identities apart without keeping a token. Two tokens of one account
// are the same unless the plug-in's answers are bound to the token.
func (p *plugin) digest(who identity) [sha256.Size]byte {
	if who.token == "" {
		return [sha256.Size]byte{}
	}
	token := ""
	if p.spec.TokenAttributes.CacheType == configv1.TokenServiceAccountTokenCacheType {
		token = who.token
	}
	text, err := json.Marshal([]any{who.namespace, who.name, who.uid, who.annotations, token})
	if err != nil {
		panic("keyring: strings cannot be marshalled: " + err.Error())
	}
	return sha256.Sum256(text)
}
