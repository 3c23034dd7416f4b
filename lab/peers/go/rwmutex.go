package main

import "sync"

var rwMutexCases = []benchCase{
	{name: "RWMutexUncontended", body: rwMutexUncontended},
	{name: "RWMutexWrite100", body: func(b *bench) { rwMutex(b, 100, 0) }},
	{name: "RWMutexWrite10", body: func(b *bench) { rwMutex(b, 10, 0) }},
	{name: "RWMutexWorkWrite100", body: func(b *bench) { rwMutex(b, 100, localSteps) }},
	{name: "RWMutexWorkWrite10", body: func(b *bench) { rwMutex(b, 10, localSteps) }},
}

// Each goroutine has one of its own: a read in a read, and a write.
func rwMutexUncontended(b *bench) {
	b.runNumbered(func(_ int, p *portion) {
		var mu struct {
			sync.RWMutex
			pad [128]byte
		}
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				mu.RLock()
				mu.RLock()
				mu.RUnlock()
				mu.RUnlock()
				mu.Lock()
				mu.Unlock()
			}
		}
	})
}

// One for all: a write every so many operations, and reads else, with work meanwhile.
func rwMutex(b *bench, every, work int) {
	var mu sync.RWMutex
	b.runNumbered(func(_ int, p *portion) {
		count, x := 0, uint64(1)
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				count++
				if count == every {
					count = 0
					mu.Lock()
					mu.Unlock()
				} else {
					mu.RLock()
					if work > 0 {
						x = steps(work, x)
					}
					mu.RUnlock()
				}
			}
		}
	})
}
