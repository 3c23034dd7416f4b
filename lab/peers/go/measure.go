package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A bench is what the body of a benchmark is given, as testing.B is.
type bench struct {
	// How many operations to make.
	n      int
	extras []string

	start   time.Time
	elapsed time.Duration
	// The round before, of which the grain is made.
	lastN    int
	lastTime time.Duration
}

const maxN = 1_000_000_000

// Rounds of growing n until one takes long enough; that one counts. The rule is testing's: a fifth more than should
// suffice, at least one more and at most a hundred times as many as before.
func (c benchCase) measure(minTime time.Duration) *bench {
	b := &bench{n: 1}
	for {
		b.round(c.body)
		if c.once || b.elapsed >= minTime || b.n >= maxN {
			return b
		}
		n := int64(minTime) * int64(b.n) / max(int64(b.elapsed), 1)
		b.n = int(min(max(min(n+n/5, 100*int64(b.n)), int64(b.n)+1), maxN))
	}
}

func (b *bench) round(body func(b *bench)) {
	runtime.GC() // what the round before has left is not this one's
	b.extras = nil
	b.elapsed = 0
	b.resetTimer()
	body(b)
	if b.elapsed == 0 {
		b.stopTimer()
	}
	b.lastN, b.lastTime = b.n, b.elapsed
}

// From here on it counts.
func (b *bench) resetTimer() { b.start = time.Now() }

// What comes after does not count.
func (b *bench) stopTimer() { b.elapsed = time.Since(b.start) }

func (b *bench) nsPerOp() float64 { return float64(b.elapsed.Nanoseconds()) / float64(b.n) }

// Another quantity; the end of its key says of what kind it is: _ns, _bytes, _share.
func (b *bench) extra(key string, value float64) {
	b.extras = append(b.extras, fmt.Sprintf("%s=%.4f", key, value))
}

// A share of the operations of a round that several goroutines divide among themselves, in grains.
type portion struct {
	taken *atomic.Uint64
	grain uint64
	left  uint64
	n     uint64
}

// Takes one operation, if one is left.
func (p *portion) more() bool {
	if p.left == 0 {
		p.left = uint64(p.take())
		if p.left == 0 {
			return false
		}
	}
	p.left--
	return true
}

// Takes a grain of operations; 0: none is left. The loop over a grain has nothing in it but the operation.
func (p *portion) take() int {
	end := p.taken.Add(p.grain)
	switch {
	case end <= p.n:
		return int(p.grain)
	case end < p.n+p.grain:
		return int(p.n + p.grain - end) // the last, smaller grain
	default:
		return 0
	}
}

// The operations of the round, divided among parallelism x GOMAXPROCS goroutines in grains of about 100 us.
func (b *bench) runParallel(parallelism int, body func(p *portion)) {
	b.divide(parallelism, func(_ int, p *portion) { body(p) })
}

// The same among GOMAXPROCS goroutines, each with its number. What comes before and after does not count.
func (b *bench) runNumbered(body func(me int, p *portion)) {
	b.resetTimer()
	b.divide(1, body)
	b.stopTimer()
}

func (b *bench) divide(parallelism int, body func(me int, p *portion)) {
	grain := uint64(1)
	if b.lastN > 0 && b.lastTime > 0 {
		grain = min(max(100_000*uint64(b.lastN)/uint64(b.lastTime), 1), 10_000)
	}
	var taken atomic.Uint64
	var wg sync.WaitGroup
	for me := range parallelism * runtime.GOMAXPROCS(0) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			body(me, &portion{taken: &taken, grain: grain, n: uint64(b.n)})
		}()
	}
	wg.Wait()
}
