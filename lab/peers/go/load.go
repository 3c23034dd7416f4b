package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

var loadCases = []benchCase{
	{name: "ForkJoin", body: forkJoin},
	{name: "Imbalance", body: imbalance},
	{name: "Million", once: true, body: million},
}

// 10,000 tasks of 20 to 200 us, in an order that looks random.
func forkJoin(b *bench) {
	const tasks = 10_000
	burn(time.Microsecond) // calibrates
	var wg sync.WaitGroup
	b.resetTimer()
	for range b.n {
		for i := range tasks {
			wg.Add(1)
			go func() {
				burn(time.Duration(20+i*7919%181) * time.Microsecond)
				wg.Done()
			}()
		}
		wg.Wait()
	}
}

// Starts as many goroutines as are asked for; they wait at one gate, which is then opened, and do something; until all
// have ended.
func crowd(count int, something func()) {
	var ready, gate, done sync.WaitGroup
	gate.Add(1)
	ready.Add(count)
	done.Add(count)
	for range count {
		go func() {
			ready.Done()
			gate.Wait()
			something()
			done.Done()
		}()
	}
	ready.Wait()
	gate.Done()
	done.Wait()
}

// 64 goroutines that have started, and wait; then each has 10 ms to do.
func imbalance(b *bench) {
	burn(time.Microsecond) // calibrates
	b.resetTimer()
	for range b.n {
		crowd(64, func() { burn(10 * time.Millisecond) })
	}
}

// Very many goroutines at one gate. Twice: the first time, most of it is the memory, which the second one finds. The
// time is that of the second.
func million(b *bench) {
	nothing := func() {}
	crowd(*count, nothing)
	first := time.Since(b.start)
	b.resetTimer()
	crowd(*count, nothing)
	b.stopTimer()
	b.extra("first_ns", float64(first.Nanoseconds()))
	if peak := peakBytes(); peak > 0 {
		b.extra("peak_bytes", peak)
	}
}

// The most memory that the process has had: VmHWM. 0 where that cannot be told.
func peakBytes() float64 {
	file, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var kib float64
		if rest, found := strings.CutPrefix(lines.Text(), "VmHWM:"); found {
			fmt.Sscanf(strings.TrimSpace(rest), "%f kB", &kib)
			return kib * 1024
		}
	}
	return 0
}
