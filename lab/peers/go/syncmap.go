package main

import (
	"strconv"
	"sync"
)

var mapCases = []benchCase{
	{name: "MapLoadMostlyHits", body: func(b *bench) { mapLoad(b, 1023) }},
	{name: "MapLoadMostlyMisses", body: func(b *bench) { mapLoad(b, 1) }},
	{name: "MapLoadOrStoreBalanced", body: mapLoadOrStoreBalanced},
	{name: "MapLoadOrStoreUnique", body: mapLoadOrStoreUnique},
	{name: "MapLoadOrStoreCollision", body: mapLoadOrStoreCollision},
	{name: "MapLoadAndDeleteBalanced", body: mapLoadAndDeleteBalanced},
	{name: "MapLoadAndDeleteUnique", body: mapLoadAndDeleteUnique},
	{name: "MapLoadAndDeleteCollision", body: mapLoadAndDeleteCollision},
	{name: "MapRange", body: mapRange},
	{name: "MapAdversarialAlloc", body: mapAdversarialAlloc},
	{name: "MapAdversarialDelete", body: mapAdversarialDelete},
	{name: "MapDeleteCollision", body: mapDeleteCollision},
	{name: "MapSwapCollision", body: mapSwapCollision},
	{name: "MapSwapMostlyHits", body: func(b *bench) { mapSwap(b, 1023) }},
	{name: "MapSwapMostlyMisses", body: func(b *bench) { mapSwap(b, 1) }},
	{name: "MapCompareAndSwapCollision", body: mapCompareAndSwapCollision},
	{name: "MapCompareAndSwapNoExistingKey", body: mapCompareAndSwapNoExistingKey},
	{name: "MapCompareAndSwapValueNotEqual", body: mapCompareAndSwapValueNotEqual},
	{name: "MapCompareAndSwapMostlyHits", body: func(b *bench) { mapCompareAndSwap(b, 1023) }},
	{name: "MapCompareAndSwapMostlyMisses", body: func(b *bench) { mapCompareAndSwap(b, 1) }},
	{name: "MapCompareAndDeleteCollision", body: mapCompareAndDeleteCollision},
	{name: "MapCompareAndDeleteMostlyHits", body: func(b *bench) { mapCompareAndDelete(b, 1023) }},
	{name: "MapCompareAndDeleteMostlyMisses", body: func(b *bench) { mapCompareAndDelete(b, 1) }},
	{name: "MapClear", body: mapClear},
	{name: "HashTrieMapLoadSmall", body: func(b *bench) { wordsLoad(b, 1<<3) }},
	{name: "HashTrieMapLoad", body: func(b *bench) { wordsLoad(b, 1<<7) }},
	{name: "HashTrieMapLoadLarge", body: func(b *bench) { wordsLoad(b, 1<<17) }},
	{name: "HashTrieMapLoadOrStore", body: func(b *bench) { wordsLoadOrStore(b, 1<<7) }},
	{name: "HashTrieMapLoadOrStoreLarge", body: func(b *bench) { wordsLoadOrStore(b, 1<<17) }},
}

// Where hits and misses are not balanced, a key in so many is of the rarer kind.
const mapKeys = 1024

// So many keys, each looked at twice.
func fillMap(m *sync.Map, keys int) {
	for i := range keys {
		m.Store(i, i)
	}
	for i := range 2 * keys {
		m.Load(i % keys)
	}
}

// Of mapKeys numbers, the first so many are keys; the others are new numbers.
func mapKey(i, hits int) (int, bool) {
	if place := i % mapKeys; place < hits {
		return place, true
	}
	return i, false
}

// Loads of keys, so many of which are there.
func mapLoad(b *bench, hits int) {
	var m sync.Map
	fillMap(&m, hits)
	b.runNumbered(func(me int, p *portion) {
		i := me * b.n
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				m.Load(i % mapKeys)
				i++
			}
		}
	})
}

// One in two finds something, the others store.
func mapLoadOrStoreBalanced(b *bench) {
	var m sync.Map
	const hits, misses = 128, 128
	fillMap(&m, hits)
	b.runNumbered(func(me int, p *portion) {
		i := me * b.n
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				if j := i % (hits + misses); j < hits {
					_, loaded := m.LoadOrStore(j, i)
					check(loaded)
				} else {
					m.LoadOrStore(i, i)
				}
				i++
			}
		}
	})
}

// Always a new key.
func mapLoadOrStoreUnique(b *bench) {
	var m sync.Map
	b.runNumbered(func(me int, p *portion) {
		i := me * b.n
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				m.LoadOrStore(i, i)
				i++
			}
		}
	})
}

// Always the same key.
func mapLoadOrStoreCollision(b *bench) {
	var m sync.Map
	m.Store(0, 0)
	b.runNumbered(func(_ int, p *portion) {
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				m.LoadOrStore(0, 0)
			}
		}
	})
}

// One in two is of a key that was there at first; the others never were.
func mapLoadAndDeleteBalanced(b *bench) {
	var m sync.Map
	const hits, misses = 128, 128
	fillMap(&m, hits)
	b.runNumbered(func(me int, p *portion) {
		i := me * b.n
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				if j := i % (hits + misses); j < hits {
					m.LoadAndDelete(j)
				} else {
					m.LoadAndDelete(i)
				}
				i++
			}
		}
	})
}

// Always a new key, that was never there.
func mapLoadAndDeleteUnique(b *bench) {
	var m sync.Map
	b.runNumbered(func(me int, p *portion) {
		i := me * b.n
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				m.LoadAndDelete(i)
				i++
			}
		}
	})
}

// One key: the goroutine that has removed it stores it.
func mapLoadAndDeleteCollision(b *bench) {
	var m sync.Map
	m.Store(0, 0)
	b.runNumbered(func(_ int, p *portion) {
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				if _, loaded := m.LoadAndDelete(0); loaded {
					m.Store(0, 0)
				}
			}
		}
	})
}

// A walk over all keys.
func mapRange(b *bench) {
	var m sync.Map
	fillMap(&m, mapKeys)
	b.runNumbered(func(_ int, p *portion) {
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				m.Range(func(_, _ any) bool { return true })
			}
		}
	})
}

// Loads of new keys, with stores in between, the fewer the more there have been.
func mapAdversarialAlloc(b *bench) {
	var m sync.Map
	b.runNumbered(func(me int, p *portion) {
		i := me * b.n
		var stores, loads int64
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				m.Load(i)
				loads++
				if loads > stores {
					m.LoadOrStore(i, stores)
					loads = 0
					stores++
				}
				i++
			}
		}
	})
}

// Loads of new keys; every so often some key is removed, and a new one stored.
func mapAdversarialDelete(b *bench) {
	var m sync.Map
	fillMap(&m, mapKeys)
	b.runNumbered(func(me int, p *portion) {
		i := me * b.n
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				m.Load(i)
				if i%mapKeys == 0 {
					m.Range(func(key, _ any) bool {
						m.Delete(key)
						return false
					})
					m.Store(i, i)
				}
				i++
			}
		}
	})
}

// One key, which is not there but the first time.
func mapDeleteCollision(b *bench) {
	var m sync.Map
	m.Store(0, 0)
	b.runNumbered(func(_ int, p *portion) {
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				m.Delete(0)
			}
		}
	})
}

// One key.
func mapSwapCollision(b *bench) {
	var m sync.Map
	m.Store(0, 0)
	b.runNumbered(func(_ int, p *portion) {
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				m.Swap(0, 0)
			}
		}
	})
}

// So many in so many are there; the others are removed at once.
func mapSwap(b *bench, hits int) {
	var m sync.Map
	fillMap(&m, hits)
	b.runNumbered(func(me int, p *portion) {
		i := me * b.n
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				key, hit := mapKey(i, hits)
				m.Swap(key, key)
				if !hit {
					m.Delete(key)
				}
				i++
			}
		}
	})
}

// One key: from one value to another, and back.
func mapCompareAndSwapCollision(b *bench) {
	var m sync.Map
	m.Store(0, 0)
	b.runNumbered(func(_ int, p *portion) {
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				if m.CompareAndSwap(0, 0, 42) {
					m.CompareAndSwap(0, 42, 0)
				}
			}
		}
	})
}

// Always a new key, that is not there.
func mapCompareAndSwapNoExistingKey(b *bench) {
	var m sync.Map
	b.runNumbered(func(me int, p *portion) {
		i := me * b.n
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				if m.CompareAndSwap(i, 0, 0) {
					m.Delete(i)
				}
				i++
			}
		}
	})
}

// One key with another value.
func mapCompareAndSwapValueNotEqual(b *bench) {
	var m sync.Map
	m.Store(0, 0)
	b.runNumbered(func(_ int, p *portion) {
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				m.CompareAndSwap(0, 1, 2)
			}
		}
	})
}

// So many in so many are there, and have that value.
func mapCompareAndSwap(b *bench, hits int) {
	var m sync.Map
	fillMap(&m, hits)
	b.runNumbered(func(me int, p *portion) {
		i := me * b.n
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				key, _ := mapKey(i, hits)
				m.CompareAndSwap(key, key, key)
				i++
			}
		}
	})
}

// One key: the goroutine that has removed it stores it.
func mapCompareAndDeleteCollision(b *bench) {
	var m sync.Map
	m.Store(0, 0)
	b.runNumbered(func(_ int, p *portion) {
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				if m.CompareAndDelete(0, 0) {
					m.Store(0, 0)
				}
			}
		}
	})
}

// So many in so many are there, unless a goroutine has just removed them and is about to store them again.
func mapCompareAndDelete(b *bench, hits int) {
	var m sync.Map
	fillMap(&m, hits)
	b.runNumbered(func(me int, p *portion) {
		i := me * b.n
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				key, _ := mapKey(i, hits)
				if m.CompareAndDelete(key, key) {
					m.Store(key, key)
				}
				i++
			}
		}
	})
}

// Removes all keys, and stores one.
func mapClear(b *bench) {
	var m sync.Map
	b.runNumbered(func(me int, p *portion) {
		i := me * b.n
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				key := i % 256
				m.Clear()
				m.Store(key, key)
				i++
			}
		}
	})
}

// Numbers as words. Go measures the trie below sync.Map with them, which a program cannot import; words that are
// interfaces already cost sync.Map no allocation.
func words(count int) []any {
	words := make([]any, count)
	for i := range words {
		words[i] = strconv.Itoa(i)
	}
	return words
}

// Loads of words that are there.
func wordsLoad(b *bench, count int) {
	var m sync.Map
	words := words(count)
	for i, word := range words {
		m.LoadOrStore(word, i)
	}
	b.runNumbered(func(_ int, p *portion) {
		i := 0
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				m.Load(words[i])
				i++
				if i == len(words) {
					i = 0
				}
			}
		}
	})
}

// Each word is stored once, and found from then on.
func wordsLoadOrStore(b *bench, count int) {
	var m sync.Map
	words := words(count)
	b.runNumbered(func(_ int, p *portion) {
		i := 0
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				m.LoadOrStore(words[i], i)
				i++
				if i == len(words) {
					i = 0
				}
			}
		}
	})
}
