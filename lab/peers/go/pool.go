package main

import "sync"

var poolCases = []benchCase{
	{name: "SyncPool", body: func(b *bench) { syncPool(b, 1, 1) }},
	{name: "SyncPoolOverflow", body: func(b *bench) { syncPool(b, 100, 100) }},
	{name: "SyncPoolStarvation", body: func(b *bench) { syncPool(b, 67, 100) }},
}

// So many items are put into one pool, and so many asked for.
func syncPool(b *bench, puts, gets int) {
	var pool sync.Pool
	b.runNumbered(func(_ int, p *portion) {
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				for range puts {
					pool.Put(1)
				}
				for range gets {
					pool.Get()
				}
			}
		}
	})
}
