package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// tailSleepers is Go's side of the first part of tail: how late 100 sleepers of 1 ms wake beside a goroutine that
// computes.
func tailSleepers(d time.Duration) {
	const sleep = time.Millisecond
	var mu sync.Mutex
	var all []int64
	var over atomic.Bool
	var done sync.WaitGroup
	burn(time.Microsecond) // calibrates
	for range 100 {
		done.Add(1)
		go func() {
			defer done.Done()
			var times []int64
			for !over.Load() {
				due := time.Now().Add(sleep)
				time.Sleep(sleep)
				times = append(times, time.Since(due).Nanoseconds())
			}
			mu.Lock()
			all = append(all, times...)
			mu.Unlock()
		}()
	}
	time.Sleep(20 * sleep)
	for begun := time.Now(); time.Since(begun) < d; {
		burn(100 * time.Microsecond)
	}
	over.Store(true)
	done.Wait()
	slices.Sort(all)
	at := func(perMille int) int64 { return all[max((len(all)*perMille+999)/1000-1, 0)] }
	json.NewEncoder(os.Stdout).Encode(map[string]int64{
		"n": int64(len(all)), "p50": at(500), "p90": at(900), "p99": at(990), "p999": at(999), "max": at(1000),
	})
}

// serveTail is Go's side of the second part: it computes for as many microseconds as a request says, and sends the
// request back.
func serveTail() {
	burn(time.Microsecond) // calibrates
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				request := make([]byte, 4)
				for {
					if _, err := io.ReadFull(conn, request); err != nil {
						return
					}
					burn(time.Duration(binary.LittleEndian.Uint32(request)) * time.Microsecond)
					if _, err := conn.Write(request); err != nil {
						return
					}
				}
			}()
		}
	}()
	io.Copy(io.Discard, os.Stdin)
}
