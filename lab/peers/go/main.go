// Go's side of `lab versus-go`: what Go's own benchmarks of sync and of the scheduler measure, as a plain program.
//
// It is called with the name of one benchmark and prints one line: name, nanoseconds of an operation, other
// quantities as key=value. With -list it prints the names. The other side is lab/peers/src/versus_go/bodies; every
// benchmark has the same structure there.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

// A case is a benchmark by its name.
type benchCase struct {
	name string
	// It is run once, with n = 1, however short that is.
	once bool
	body func(b *bench)
}

var cases = concat(
	syncCases, schedCases, loadCases, chanCases, talkerCases, rwMutexCases, onceCases, poolCases, mapCases, contextCases,
)

// How many goroutines Million makes.
var count = flag.Int("count", 1_000_000, "goroutines of Million; no more contexts than that in WithTimeout400000")

func main() {
	minTime := flag.Duration("min-time", 200*time.Millisecond, "how long the last round must take")
	list := flag.Bool("list", false, "print the names and stop")
	protocol := flag.String("net", "", "serve echo, http or json instead")
	sleepers := flag.Duration("sleepers", 0, "measure sleepers beside a goroutine that computes for so long instead")
	tail := flag.Bool("tail", false, "serve requests of tail instead")
	flag.Parse()
	switch {
	case *protocol == "echo":
		serveEcho()
		return
	case *protocol != "":
		serveHTTP(*protocol)
		return
	case *tail:
		serveTail()
		return
	case *sleepers > 0:
		tailSleepers(*sleepers)
		return
	}
	if *list {
		for _, c := range cases {
			fmt.Println(c.name)
		}
		return
	}
	for _, c := range cases {
		if c.name == flag.Arg(0) {
			b := c.measure(*minTime)
			fmt.Println(strings.TrimSpace(fmt.Sprintf("%s %.3f %s", c.name, b.nsPerOp(), strings.Join(b.extras, " "))))
			return
		}
	}
	fmt.Fprintf(os.Stderr, "unknown benchmark %q\n", flag.Arg(0))
	os.Exit(2)
}

func concat(lists ...[]benchCase) (all []benchCase) {
	for _, list := range lists {
		all = append(all, list...)
	}
	return
}
