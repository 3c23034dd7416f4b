package main

import (
	"math"
	"sync"
	"time"
)

// Steps of xorshift, each of which depends on the one before: no compiler can shorten them. As it is not inlined, the
// call stays even where nobody needs what it returns.
//
//go:noinline
func steps(n int, x uint64) uint64 {
	for range n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// About 25 ns: as long as the hundred turns of Go's "work" benchmarks, which are an empty loop when compiled.
const localSteps = 16

var stepsPerMicrosecond = sync.OnceValue(func() float64 {
	const n = 20_000
	best := math.Inf(1)
	for range 50 {
		start := time.Now()
		steps(n, 1)
		best = min(best, float64(time.Since(start).Nanoseconds()))
	}
	return n * 1000 / best
})

// Takes a processor for so long: counted in steps, so time in which it does not run does not count.
func burn(d time.Duration) {
	steps(int(stepsPerMicrosecond()*float64(d.Nanoseconds())/1000), 1)
}

// Looks at the clock for so long.
func spin(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
	}
}

// A baton is what one goroutine gives to another: a semaphore without permits. A WaitGroup is the thinnest thing around
// the runtime's semaphore that a program can have. One goroutine takes, ever, so its Add comes before the next Done.
type baton struct{ wg sync.WaitGroup }

func newBaton() *baton {
	b := new(baton)
	b.wg.Add(1)
	return b
}

func (b *baton) give() { b.wg.Done() }

func (b *baton) take() {
	b.wg.Wait()
	b.wg.Add(1)
}
