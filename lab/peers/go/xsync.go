//go:build xsync

// What golang.org/x/sync has. Its packages are copied here from the toolchain, which is built with them itself; in a
// toolchain without sources these benchmarks are left out.
package main

import (
	"context"
	"strconv"

	"sudog.example/versus/errgroup"
	"sudog.example/versus/semaphore"
	"sudog.example/versus/singleflight"
)

func init() { cases = append(cases, xCases...) }

var xCases = []benchCase{
	{name: "SemaphoreNewSeq1", body: func(b *bench) { semaphoreNew(b, 1) }},
	{name: "SemaphoreNewSeq128", body: func(b *bench) { semaphoreNew(b, 128) }},
	{name: "SemaphoreAcquireSeq1x1x1", body: func(b *bench) { semaphoreAcquire(b, 1, 1, 1) }},
	{name: "SemaphoreAcquireSeq2x1x1", body: func(b *bench) { semaphoreAcquire(b, 2, 1, 1) }},
	{name: "SemaphoreAcquireSeq16x1x1", body: func(b *bench) { semaphoreAcquire(b, 16, 1, 1) }},
	{name: "SemaphoreAcquireSeq128x1x1", body: func(b *bench) { semaphoreAcquire(b, 128, 1, 1) }},
	{name: "SemaphoreAcquireSeq2x2x1", body: func(b *bench) { semaphoreAcquire(b, 2, 2, 1) }},
	{name: "SemaphoreAcquireSeq16x2x8", body: func(b *bench) { semaphoreAcquire(b, 16, 2, 8) }},
	{name: "SemaphoreAcquireSeq128x2x64", body: func(b *bench) { semaphoreAcquire(b, 128, 2, 64) }},
	{name: "SemaphoreAcquireSeq2x1x2", body: func(b *bench) { semaphoreAcquire(b, 2, 1, 2) }},
	{name: "SemaphoreAcquireSeq16x8x2", body: func(b *bench) { semaphoreAcquire(b, 16, 8, 2) }},
	{name: "SemaphoreAcquireSeq128x64x2", body: func(b *bench) { semaphoreAcquire(b, 128, 64, 2) }},
	{name: "SemaphoreTryAcquireSeq1x1x1", body: func(b *bench) { semaphoreTryAcquire(b, 1, 1, 1) }},
	{name: "SemaphoreTryAcquireSeq2x1x1", body: func(b *bench) { semaphoreTryAcquire(b, 2, 1, 1) }},
	{name: "SemaphoreTryAcquireSeq16x1x1", body: func(b *bench) { semaphoreTryAcquire(b, 16, 1, 1) }},
	{name: "SemaphoreTryAcquireSeq128x1x1", body: func(b *bench) { semaphoreTryAcquire(b, 128, 1, 1) }},
	{name: "SemaphoreTryAcquireSeq2x2x1", body: func(b *bench) { semaphoreTryAcquire(b, 2, 2, 1) }},
	{name: "SemaphoreTryAcquireSeq16x2x8", body: func(b *bench) { semaphoreTryAcquire(b, 16, 2, 8) }},
	{name: "SemaphoreTryAcquireSeq128x2x64", body: func(b *bench) { semaphoreTryAcquire(b, 128, 2, 64) }},
	{name: "SemaphoreTryAcquireSeq2x1x2", body: func(b *bench) { semaphoreTryAcquire(b, 2, 1, 2) }},
	{name: "SemaphoreTryAcquireSeq16x8x2", body: func(b *bench) { semaphoreTryAcquire(b, 16, 8, 2) }},
	{name: "SemaphoreTryAcquireSeq128x64x2", body: func(b *bench) { semaphoreTryAcquire(b, 128, 64, 2) }},
	{name: "ErrGroupGo", body: errGroupGo},
	{name: "SingleFlightDo", body: func(b *bench) { singleFlightDo(b, false) }},
	{name: "SingleFlightDoSame", body: func(b *bench) { singleFlightDo(b, true) }},
}

var theSemaphore *semaphore.Weighted

func semaphoreNew(b *bench, size int64) {
	for range b.n {
		theSemaphore = semaphore.NewWeighted(size)
	}
}

// So many times so many tokens are taken, and given back.
func semaphoreAcquire(b *bench, size, tokens int64, times int) {
	s, ctx := semaphore.NewWeighted(size), context.Background()
	for range b.n {
		for range times {
			s.Acquire(ctx, tokens)
		}
		for range times {
			s.Release(tokens)
		}
	}
}

func semaphoreTryAcquire(b *bench, size, tokens int64, times int) {
	s := semaphore.NewWeighted(size)
	for range b.n {
		for range times {
			check(s.TryAcquire(tokens))
		}
		for range times {
			s.Release(tokens)
		}
	}
}

func errGroupGo(b *bench) {
	var group errgroup.Group
	for range b.n {
		group.Go(func() error { return nil })
	}
	check(group.Wait() == nil)
}

// Calls that do nothing, each goroutine for its own key or all for the same.
func singleFlightDo(b *bench, same bool) {
	var group singleflight.Group
	b.runNumbered(func(me int, p *portion) {
		key := "key"
		if !same {
			key = strconv.Itoa(me)
		}
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				value, err, _ := group.Do(key, func() (any, error) { return 42, nil })
				check(value == 42 && err == nil)
			}
		}
	})
}
