package userns

import "math/bits"

// bitmap has a bit per slot, set when it is taken.
type bitmap struct {
	words []uint64
	size  int
}

func newBitmap(size int) bitmap {
	return bitmap{words: make([]uint64, (size+63)/64), size: size}
}

func (b bitmap) has(i int) bool { return b.words[i/64]&(1<<(i%64)) != 0 }
func (b bitmap) set(i int)      { b.words[i/64] |= 1 << (i % 64) }
func (b bitmap) clear(i int)    { b.words[i/64] &^= 1 << (i % 64) }

func (b bitmap) firstFree() (int, bool) {
	for i, word := range b.words {
		if slot := i*64 + bits.TrailingZeros64(^word); slot < min((i+1)*64, b.size) {
			return slot, true
		}
	}
	return 0, false
}
