package keyring

// Remembered is how many answers of plug-ins are in memory.
func Remembered(k *Keyring) int {
	n := 0
	for _, p := range k.plugins {
		p.mu.Lock()
		n += len(p.mu.cache)
		p.mu.Unlock()
	}
	return n
}

// Waiting is how many callers wait for a run of a plug-in's program.
func Waiting(k *Keyring) int {
	n := 0
	for _, p := range k.plugins {
		p.mu.Lock()
		for _, one := range p.mu.runs {
			n += one.waiting
		}
		p.mu.Unlock()
	}
	return n
}
