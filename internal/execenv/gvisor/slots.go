package gvisor

import "math/bits"

// slots hands out small numbers, the lowest free one first. Each is a cgroup
// in the sandbox, made when first used and used again: a sandbox in which a
// hundred thousand commands ran one after the other has one.
type slots struct{ used []uint64 }

func (s *slots) take() int {
	for i, word := range s.used {
		if free := bits.TrailingZeros64(^word); free < 64 {
			s.used[i] |= 1 << free
			return i*64 + free
		}
	}
	s.used = append(s.used, 1)
	return (len(s.used) - 1) * 64
}

func (s *slots) release(n int) { s.used[n/64] &^= 1 << (n % 64) }
