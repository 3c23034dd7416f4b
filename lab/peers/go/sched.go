package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

var schedCases = []benchCase{
	{name: "CreateGoroutines", body: func(b *bench) { createGoroutines(b, 1) }},
	{name: "CreateGoroutinesParallel", body: func(b *bench) { createGoroutines(b, runtime.GOMAXPROCS(0)) }},
	{name: "CreateGoroutinesSingle", body: createGoroutinesSingle},
	{name: "Switch", body: switches},
	{name: "PingPong", body: func(b *bench) { pingPong(b, 0) }},
	{name: "PingPongHog", body: pingPongHog},
	{name: "XPingIdle100us", body: func(b *bench) { pingPong(b, 100*time.Microsecond) }},
	{name: "WakeupParallel5us", body: func(b *bench) { wakeupParallel(b, 5*time.Microsecond) }},
	{name: "WakeupParallel50us", body: func(b *bench) { wakeupParallel(b, 50*time.Microsecond) }},
	{name: "Sleep100us", body: sleep100us},
	{name: "DaisyChain", body: daisyChain},
}

// Chains of goroutines, each of which starts the next one and ends.
func createGoroutines(b *bench, chains int) {
	var done sync.WaitGroup
	done.Add(chains)
	var link func(n int)
	link = func(n int) {
		if n == 0 {
			done.Done()
			return
		}
		go link(n - 1)
	}
	for range chains {
		go link(b.n / chains)
	}
	done.Wait()
}

// One goroutine starts all, with the processors awake.
func createGoroutinesSingle(b *bench) {
	var awake sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		awake.Add(1)
		go func() {
			burn(500 * time.Microsecond)
			awake.Done()
		}()
	}
	awake.Wait()
	b.resetTimer()
	var wg sync.WaitGroup
	wg.Add(b.n)
	for range b.n {
		go func() { wg.Done() }()
	}
	wg.Wait()
}

// Two goroutines that give way to each other; an operation is one of these yields.
func switches(b *bench) {
	var done sync.WaitGroup
	for range 2 {
		done.Add(1)
		go func() {
			for range b.n / 2 {
				runtime.Gosched()
			}
			done.Done()
		}()
	}
	done.Wait()
}

// There and back. Before each the first one may be busy for a while, in which the other has nothing to do.
func pingPong(b *bench, busy time.Duration) {
	ping, pong := newBaton(), newBaton()
	go func() {
		for range b.n {
			ping.take()
			pong.give()
		}
	}()
	for range b.n {
		if busy > 0 {
			spin(busy)
		}
		ping.give()
		pong.take()
	}
}

// The same beside somebody who always has something to do. What part of the time he gets is the other figure.
func pingPongHog(b *bench) {
	const turn = 10 * time.Microsecond
	var stop atomic.Bool
	var turns atomic.Int64
	var done sync.WaitGroup
	done.Add(1)
	burn(turn) // calibrates
	go func() {
		for !stop.Load() {
			burn(turn)
			turns.Add(1)
			runtime.Gosched()
		}
		done.Done()
	}()
	b.resetTimer()
	pingPong(b, 0)
	b.stopTimer()
	b.extra("hog_share", float64(turns.Load()*int64(turn))/float64(b.elapsed))
	stop.Store(true)
	done.Wait()
}

// Two goroutines take turns as giver and taker, and spin before each: the giver for longer, so that the taker waits
// by then. They should spin at the same time, and 2 * (delay + wake) is then the least that it can take.
func wakeupParallel(b *bench, delay time.Duration) {
	const wake = 5 * time.Microsecond
	ping, pong := newBaton(), newBaton()
	var done sync.WaitGroup
	done.Add(2)
	go func() {
		for range b.n {
			spin(delay + wake)
			ping.give()
			spin(delay)
			pong.take()
		}
		done.Done()
	}()
	go func() {
		for range b.n {
			spin(delay)
			ping.take()
			spin(delay + wake)
			pong.give()
		}
		done.Done()
	}()
	done.Wait()
}

// What a short sleep comes to.
func sleep100us(b *bench) {
	for range b.n {
		time.Sleep(100 * time.Microsecond)
	}
}

// A line of goroutines, each of which waits for its right neighbour; an operation is to start them and to send
// something through. The first time, which meets fresh memory, does not count.
func daisyChain(b *bench) {
	const stages = 10_000
	links := make([]baton, stages+1)
	for i := range links {
		links[i].wg.Add(1)
	}
	for turn := range b.n + 1 {
		if turn == 1 {
			b.resetTimer()
		}
		for i := range stages {
			go func() {
				links[i+1].take()
				links[i].give()
			}()
		}
		links[stages].give()
		links[0].take()
	}
}
