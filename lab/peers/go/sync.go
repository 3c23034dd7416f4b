package main

import "sync"

var syncCases = []benchCase{
	{name: "MutexUncontended", body: mutexUncontended},
	{name: "Mutex", body: func(b *bench) { mutex(b, 1, 0) }},
	{name: "MutexSlack", body: func(b *bench) { mutex(b, 10, 0) }},
	{name: "MutexWork", body: func(b *bench) { mutex(b, 1, localSteps) }},
	{name: "MutexWorkSlack", body: func(b *bench) { mutex(b, 10, localSteps) }},
	{name: "MutexNoSpin", body: mutexNoSpin},
	{name: "MutexSpin", body: mutexSpin},
	{name: "WaitGroupUncontended", body: waitGroupUncontended},
	{name: "WaitGroupAddDone", body: func(b *bench) { waitGroupAddDone(b, 0) }},
	{name: "WaitGroupAddDoneWork", body: func(b *bench) { waitGroupAddDone(b, localSteps) }},
	{name: "WaitGroupWait", body: func(b *bench) { waitGroupWait(b, 0) }},
	{name: "WaitGroupWaitWork", body: func(b *bench) { waitGroupWait(b, localSteps) }},
	{name: "WaitGroupActuallyWait", body: waitGroupActuallyWait},
	{name: "Cond1", body: func(b *bench) { cond(b, 1) }},
	{name: "Cond2", body: func(b *bench) { cond(b, 2) }},
	{name: "Cond4", body: func(b *bench) { cond(b, 4) }},
	{name: "Cond8", body: func(b *bench) { cond(b, 8) }},
	{name: "Cond16", body: func(b *bench) { cond(b, 16) }},
	{name: "Cond32", body: func(b *bench) { cond(b, 32) }},
}

// Everybody has a mutex of his own.
func mutexUncontended(b *bench) {
	b.runParallel(1, func(p *portion) {
		var mu struct {
			sync.Mutex
			pad [128]byte
		}
		for p.more() {
			mu.Lock()
			mu.Unlock()
		}
	})
}

func mutex(b *bench, parallelism, work int) {
	var mu sync.Mutex
	b.runParallel(parallelism, func(p *portion) {
		x := uint64(1)
		for p.more() {
			mu.Lock()
			mu.Unlock()
			if work > 0 {
				x = steps(work, x)
			}
		}
	})
}

// Spinning is of no use here: there is always somebody else to run. One turn in four locks; the others touch memory and
// give way by waiting for a new goroutine.
func mutexNoSpin(b *bench) {
	var mu sync.Mutex
	var from, to uint64
	b.runParallel(4, func(p *portion) {
		handshake := newBaton()
		data := make([]uint64, 4<<10)
		for i := 0; p.more(); i++ {
			if i%4 == 0 {
				mu.Lock()
				from -= 100
				to += 100
				mu.Unlock()
			} else {
				touch(data)
				go func() { handshake.give() }()
				handshake.take()
			}
		}
	})
}

// Spinning is of use here: the mutex is held for short, and everybody has much to do without it.
func mutexSpin(b *bench) {
	var mu sync.Mutex
	var from, to uint64
	b.runParallel(1, func(p *portion) {
		data := make([]uint64, 16<<10)
		for p.more() {
			mu.Lock()
			from -= 100
			to += 100
			mu.Unlock()
			touch(data)
		}
	})
}

// One word in four.
func touch(data []uint64) {
	for i := 0; i < len(data); i += 4 {
		data[i]++
	}
}

func waitGroupUncontended(b *bench) {
	b.runParallel(1, func(p *portion) {
		var wg struct {
			sync.WaitGroup
			pad [128]byte
		}
		for p.more() {
			wg.Add(1)
			wg.Done()
			wg.Wait()
		}
	})
}

func waitGroupAddDone(b *bench, work int) {
	var wg sync.WaitGroup
	b.runParallel(1, func(p *portion) {
		x := uint64(1)
		for p.more() {
			wg.Add(1)
			if work > 0 {
				x = steps(work, x)
			}
			wg.Done()
		}
	})
}

func waitGroupWait(b *bench, work int) {
	var wg sync.WaitGroup
	b.runParallel(1, func(p *portion) {
		x := uint64(1)
		for p.more() {
			wg.Wait()
			if work > 0 {
				x = steps(work, x)
			}
		}
	})
}

// A goroutine, and the wait for it.
func waitGroupActuallyWait(b *bench) {
	b.runParallel(1, func(p *portion) {
		for p.more() {
			var wg sync.WaitGroup
			wg.Add(1)
			go func() { wg.Done() }()
			wg.Wait()
		}
	})
}

// A barrier of waiters + 1 goroutines: the last to come wakes the others.
func cond(b *bench, waiters int) {
	const over = -1
	var mu sync.Mutex
	changed := sync.NewCond(&mu)
	arrived := 0
	var done sync.WaitGroup
	for range waiters + 1 {
		done.Add(1)
		go func() {
			for range b.n {
				mu.Lock()
				if arrived == over {
					mu.Unlock()
					break
				}
				arrived++
				if arrived == waiters+1 {
					arrived = 0
					changed.Broadcast()
				} else {
					changed.Wait()
				}
				mu.Unlock()
			}
			mu.Lock()
			arrived = over
			changed.Broadcast()
			mu.Unlock()
			done.Done()
		}()
	}
	done.Wait()
}
