package imagepull

// Remembered is how many back-offs are in memory.
func Remembered(p *Puller) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.backoff)
}
