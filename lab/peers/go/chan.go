package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

var chanCases = []benchCase{
	{name: "MakeChanByte", body: makeChan[byte]},
	{name: "MakeChanInt", body: makeChan[int]},
	{name: "MakeChanPtr", body: makeChan[*byte]},
	{name: "MakeChanStruct0", body: makeChan[struct{}]},
	{name: "MakeChanStruct32", body: makeChan[[4]int64]},
	{name: "MakeChanStruct40", body: makeChan[[5]int64]},
	{name: "ChanNonblocking", body: chanNonblocking},
	{name: "SelectUncontended", body: selectUncontended},
	{name: "SelectSyncContended", body: selectSyncContended},
	{name: "SelectAsyncContended", body: selectAsyncContended},
	{name: "SelectNonblock", body: selectNonblock},
	{name: "ChanUncontended", body: chanUncontended},
	{name: "ChanContended", body: chanContended},
	{name: "ChanSync", body: func(b *bench) { chanSync(b, 0) }},
	{name: "ChanSyncWork", body: func(b *bench) { chanSync(b, localSteps) }},
	{name: "ChanProdCons0", body: func(b *bench) { chanProdCons(b, 0, 0) }},
	{name: "ChanProdCons10", body: func(b *bench) { chanProdCons(b, 10, 0) }},
	{name: "ChanProdCons100", body: func(b *bench) { chanProdCons(b, 100, 0) }},
	{name: "ChanProdConsWork0", body: func(b *bench) { chanProdCons(b, 0, localSteps) }},
	{name: "ChanProdConsWork10", body: func(b *bench) { chanProdCons(b, 10, localSteps) }},
	{name: "ChanProdConsWork100", body: func(b *bench) { chanProdCons(b, 100, localSteps) }},
	{name: "SelectProdCons", body: selectProdCons},
	{name: "ReceiveDataFromClosedChan", body: receiveFromClosed},
	{name: "ChanCreation", body: chanCreation},
	{name: "ChanSem", body: chanSem},
	{name: "ChanPopular", body: chanPopular},
	{name: "ChanClosed", body: chanClosed},
	{name: "Pool", body: func(b *bench) { pool(b, 8) }},
	{name: "PoolSync", body: func(b *bench) { pool(b, 0) }},
	{name: "Pipeline", body: func(b *bench) { pipeline(b, 16) }},
	{name: "PipelineSync", body: func(b *bench) { pipeline(b, 0) }},
	{name: "FanOutIn", body: fanOutIn},
	{name: "PrimeSieve", body: primeSieve},
	{name: "MillionChan", once: true, body: millionChan},
}

// Operations that a goroutine takes at a time.
const chanGrain = 1000

func localWork(n int) {
	if n > 0 {
		steps(n, 1)
	}
}

func makeChan[T any](b *bench) {
	var ch chan T
	for range b.n {
		ch = make(chan T, 8)
	}
	runtime.KeepAlive(ch)
}

func chanNonblocking(b *bench) {
	ch := make(chan uint64)
	b.runParallel(1, func(p *portion) {
		for p.more() {
			select {
			case <-ch:
			default:
			}
		}
	})
}

func selectUncontended(b *bench) {
	b.runParallel(1, func(p *portion) {
		a, c := make(chan uint64, 1), make(chan uint64, 1)
		a <- 0
		for p.more() {
			select {
			case <-a:
				c <- 0
			case <-c:
				a <- 0
			}
		}
	})
}

func selectSyncContended(b *bench) {
	c1, c2, c3, done := make(chan uint64), make(chan uint64), make(chan uint64), make(chan uint64)
	b.runParallel(1, func(p *portion) {
		go func() {
			for {
				select {
				case c1 <- 0:
				case c2 <- 0:
				case c3 <- 0:
				case <-done:
					return
				}
			}
		}()
		for p.more() {
			select {
			case <-c1:
			case <-c2:
			case <-c3:
			}
		}
	})
	close(done)
}

func selectAsyncContended(b *bench) {
	procs := runtime.GOMAXPROCS(0)
	a, c := make(chan uint64, procs), make(chan uint64, procs)
	b.runParallel(1, func(p *portion) {
		a <- 0
		for p.more() {
			select {
			case <-a:
				c <- 0
			case <-c:
				a <- 0
			}
		}
	})
}

func selectNonblock(b *bench) {
	c1, c2, c3, c4 := make(chan uint64), make(chan uint64), make(chan uint64, 1), make(chan uint64, 1)
	b.runParallel(1, func(p *portion) {
		for p.more() {
			select {
			case <-c1:
			default:
			}
			select {
			case c2 <- 0:
			default:
			}
			select {
			case <-c3:
			default:
			}
			select {
			case c4 <- 0:
			default:
			}
		}
	})
}

func chanUncontended(b *bench) {
	const values = 100
	b.runParallel(1, func(p *portion) {
		ch := make(chan uint64, values)
		for p.more() {
			for range values {
				ch <- 0
			}
			for range values {
				<-ch
			}
		}
	})
}

func chanContended(b *bench) {
	const values = 100
	ch := make(chan uint64, values*runtime.GOMAXPROCS(0))
	b.runParallel(1, func(p *portion) {
		for p.more() {
			for range values {
				ch <- 0
			}
			for range values {
				<-ch
			}
		}
	})
}

func chanSync(b *bench, local int) {
	ch := make(chan uint64)
	turns := (b.n + 2*chanGrain - 1) / (2 * chanGrain) * chanGrain
	var done sync.WaitGroup
	done.Add(2)
	for _, first := range []bool{true, false} {
		go func() {
			for range turns {
				if first {
					<-ch
					localWork(local)
					ch <- 0
				} else {
					ch <- 0
					localWork(local)
					<-ch
				}
				localWork(local)
			}
			done.Done()
		}()
	}
	done.Wait()
}

func chanProdCons(b *bench, capacity, local int) {
	ch := make(chan uint64, capacity)
	var grains atomic.Int64
	grains.Store(int64((b.n + chanGrain - 1) / chanGrain))
	var done sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		done.Add(2)
		go func() {
			for grains.Add(-1) >= 0 {
				for range chanGrain {
					localWork(local)
					ch <- 1
				}
			}
			ch <- 0
			done.Done()
		}()
		go func() {
			for <-ch == 1 {
				localWork(local)
			}
			done.Done()
		}()
	}
	done.Wait()
}

func selectProdCons(b *bench) {
	ch, timer, quit := make(chan uint64, 128), make(chan uint64), make(chan uint64, 1)
	var grains atomic.Int64
	grains.Store(int64((b.n + chanGrain - 1) / chanGrain))
	var done sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		done.Add(2)
		go func() {
			for grains.Add(-1) >= 0 {
				for range chanGrain {
					localWork(localSteps)
					select {
					case ch <- 1:
					case <-timer:
					case <-quit:
					}
				}
			}
			ch <- 0
			done.Done()
		}()
		go func() {
			defer done.Done()
			for {
				select {
				case v := <-ch:
					if v == 0 {
						return
					}
				case <-timer:
				case <-quit:
				}
				localWork(localSteps)
			}
		}()
	}
	done.Wait()
}

func receiveFromClosed(b *bench) {
	ch := make(chan uint64, b.n)
	for range b.n {
		ch <- 0
	}
	close(ch)
	b.resetTimer()
	for range ch {
	}
	b.stopTimer()
}

func chanCreation(b *bench) {
	b.runParallel(1, func(p *portion) {
		for p.more() {
			ch := make(chan uint64, 1)
			ch <- 0
			<-ch
		}
	})
}

func chanSem(b *bench) {
	ch := make(chan struct{}, runtime.GOMAXPROCS(0))
	b.runParallel(1, func(p *portion) {
		for p.more() {
			ch <- struct{}{}
			<-ch
		}
	})
}

func chanPopular(b *bench) {
	const goroutines = 1000
	popular := make(chan bool)
	var done sync.WaitGroup
	done.Add(goroutines)
	own := make([]chan bool, goroutines)
	for i := range own {
		ch := make(chan bool)
		own[i] = ch
		go func() {
			for range b.n {
				select {
				case <-popular:
				case <-ch:
				}
			}
			done.Done()
		}()
	}
	for range b.n {
		for _, ch := range own {
			ch <- true
		}
	}
	done.Wait()
}

func chanClosed(b *bench) {
	ch := make(chan uint64)
	close(ch)
	b.runParallel(1, func(p *portion) {
		for p.more() {
			select {
			case <-ch:
			default:
			}
		}
	})
}

const poolWorkers = 8

// 8 workers receive 1000 jobs of 20 to 200 us from one channel.
func pool(b *bench, capacity int) {
	burn(time.Microsecond) // calibrates
	b.resetTimer()
	for range b.n {
		jobs := make(chan int, capacity)
		var done sync.WaitGroup
		done.Add(poolWorkers)
		for range poolWorkers {
			go func() {
				for us := range jobs {
					burn(time.Duration(us) * time.Microsecond)
				}
				done.Done()
			}()
		}
		for i := range 1000 {
			jobs <- 20 + i*7919%181
		}
		close(jobs)
		done.Wait()
	}
}

// A value passes through 4 stages.
func pipeline(b *bench, capacity int) {
	source := make(chan uint64, capacity)
	last := source
	for range 4 {
		from, to := last, make(chan uint64, capacity)
		go func() {
			for v := range from {
				to <- steps(localSteps, v)
			}
			close(to)
		}()
		last = to
	}
	go func() {
		for v := range b.n {
			source <- uint64(v + 1)
		}
		close(source)
	}()
	for range last {
	}
}

// A value goes to one of 8 workers, and from all of them into one channel.
func fanOutIn(b *bench) {
	out, back := make(chan uint64), make(chan uint64)
	var done sync.WaitGroup
	done.Add(poolWorkers)
	for range poolWorkers {
		go func() {
			for v := range out {
				back <- steps(localSteps, v)
			}
			done.Done()
		}()
	}
	go func() {
		done.Wait()
		close(back)
	}()
	go func() {
		for v := range b.n {
			out <- uint64(v + 1)
		}
		close(out)
	}()
	for range back {
	}
}

// The first 100 primes, by a filter for each.
func primeSieve(b *bench) {
	for range b.n {
		quit := make(chan struct{})
		var done sync.WaitGroup
		last := make(chan uint64)
		first := last
		done.Add(1)
		go func() {
			defer done.Done()
			for n := uint64(2); ; n++ {
				select {
				case first <- n:
				case <-quit:
					return
				}
			}
		}()
		for range 100 {
			prime := <-last
			from, to := last, make(chan uint64)
			last = to
			done.Add(1)
			go func() {
				defer done.Done()
				for {
					var n uint64
					select {
					case n = <-from:
					case <-quit:
						return
					}
					if n%prime != 0 {
						select {
						case to <- n:
						case <-quit:
							return
						}
					}
				}
			}()
		}
		close(quit)
		done.Wait()
	}
}

// Very many goroutines that receive from one channel, which is then closed.
func crowdOnChan(count int) {
	gate := make(chan struct{})
	var ready, done sync.WaitGroup
	ready.Add(count)
	done.Add(count)
	for range count {
		go func() {
			ready.Done()
			<-gate
			done.Done()
		}()
	}
	ready.Wait()
	close(gate)
	done.Wait()
}

func millionChan(b *bench) {
	crowdOnChan(*count)
	first := time.Since(b.start)
	b.resetTimer()
	crowdOnChan(*count)
	b.stopTimer()
	b.extra("first_ns", float64(first.Nanoseconds()))
	if peak := peakBytes(); peak > 0 {
		b.extra("peak_bytes", peak)
	}
}
