package main

import (
	"context"
	"runtime"
	"sync"
	"time"
)

var contextCases = []benchCase{
	{name: "CommonParentCancel", body: commonParentCancel},
	{name: "WithTimeout40", body: func(b *bench) { contextWithTimeout(b, 40) }},
	{name: "WithTimeout4000", body: func(b *bench) { contextWithTimeout(b, 4_000) }},
	{name: "WithTimeout400000", body: func(b *bench) { contextWithTimeout(b, 400_000) }},
	{name: "CancelTreeBackground1", body: func(b *bench) { cancelTreeBackground(b, 1) }},
	{name: "CancelTreeBackground10", body: func(b *bench) { cancelTreeBackground(b, 10) }},
	{name: "CancelTreeBackground100", body: func(b *bench) { cancelTreeBackground(b, 100) }},
	{name: "CancelTreeBackground1000", body: func(b *bench) { cancelTreeBackground(b, 1000) }},
	{name: "CancelTreeOpenCanceler1", body: func(b *bench) { cancelTreeOpenCanceler(b, 1) }},
	{name: "CancelTreeOpenCanceler10", body: func(b *bench) { cancelTreeOpenCanceler(b, 10) }},
	{name: "CancelTreeOpenCanceler100", body: func(b *bench) { cancelTreeOpenCanceler(b, 100) }},
	{name: "CancelTreeOpenCanceler1000", body: func(b *bench) { cancelTreeOpenCanceler(b, 1000) }},
	{name: "CancelTreeClosedCanceler1", body: func(b *bench) { cancelTreeClosedCanceler(b, 1) }},
	{name: "CancelTreeClosedCanceler10", body: func(b *bench) { cancelTreeClosedCanceler(b, 10) }},
	{name: "CancelTreeClosedCanceler100", body: func(b *bench) { cancelTreeClosedCanceler(b, 100) }},
	{name: "CancelTreeClosedCanceler1000", body: func(b *bench) { cancelTreeClosedCanceler(b, 1000) }},
	{name: "CheckCanceledErr", body: checkCanceledErr},
	{name: "CheckCanceledDone", body: checkCanceledDone},
	{name: "ContextCancelDone", body: contextCancelDone},
	{name: "DeepValueNewGoRoutine10", body: func(b *bench) { deepValueNewGoRoutine(b, 10) }},
	{name: "DeepValueNewGoRoutine20", body: func(b *bench) { deepValueNewGoRoutine(b, 20) }},
	{name: "DeepValueNewGoRoutine30", body: func(b *bench) { deepValueNewGoRoutine(b, 30) }},
	{name: "DeepValueNewGoRoutine50", body: func(b *bench) { deepValueNewGoRoutine(b, 50) }},
	{name: "DeepValueNewGoRoutine100", body: func(b *bench) { deepValueNewGoRoutine(b, 100) }},
	{name: "DeepValueSameGoRoutine10", body: func(b *bench) { deepValueSameGoRoutine(b, 10) }},
	{name: "DeepValueSameGoRoutine20", body: func(b *bench) { deepValueSameGoRoutine(b, 20) }},
	{name: "DeepValueSameGoRoutine30", body: func(b *bench) { deepValueSameGoRoutine(b, 30) }},
	{name: "DeepValueSameGoRoutine50", body: func(b *bench) { deepValueSameGoRoutine(b, 50) }},
	{name: "DeepValueSameGoRoutine100", body: func(b *bench) { deepValueSameGoRoutine(b, 100) }},
	{name: "ErrOK", body: errOK},
	{name: "ErrCanceled", body: errCanceled},
}

// Children of one context come and go.
func commonParentCancel(b *bench) {
	root := context.WithValue(context.Background(), "key", "value")
	shared, cancelShared := context.WithCancel(root)
	defer cancelShared()
	b.runNumbered(func(_ int, p *portion) {
		x := uint64(1)
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				ctx, cancel := context.WithCancel(shared)
				check(ctx.Value("key").(string) == "value")
				x = steps(localSteps, x)
				cancel()
				x = steps(localSteps, x)
			}
		}
	})
}

// Ten contexts with a timeout come and go, beside others that stay.
func contextWithTimeout(b *bench, others int) {
	others = min(others, *count)
	procs := runtime.GOMAXPROCS(0)
	cancels := make([][]context.CancelFunc, procs)
	var made sync.WaitGroup
	for i := range cancels {
		made.Add(1)
		go func() {
			defer made.Done()
			own := make([]context.CancelFunc, others/procs)
			for j := range own {
				_, own[j] = context.WithTimeout(context.Background(), time.Hour)
			}
			cancels[i] = own
		}()
	}
	made.Wait()
	b.runNumbered(func(_ int, p *portion) {
		own := make([]context.CancelFunc, 10)
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				for i := range own {
					_, own[i] = context.WithTimeout(context.Background(), time.Hour)
				}
				for _, cancel := range own {
					cancel()
				}
			}
		}
	})
	for _, own := range cancels {
		for _, cancel := range own {
			cancel()
		}
	}
}

func cancelChain(root context.Context, depth int) {
	for range depth {
		root, _ = context.WithCancel(root)
	}
}

func cancelTreeBackground(b *bench, depth int) {
	for range b.n {
		cancelChain(context.Background(), depth)
	}
}

func cancelTreeOpenCanceler(b *bench, depth int) {
	for range b.n {
		ctx, cancel := context.WithCancel(context.Background())
		cancelChain(ctx, depth)
		cancel()
	}
}

func cancelTreeClosedCanceler(b *bench, depth int) {
	for range b.n {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		cancelChain(ctx, depth)
	}
}

func checkCanceledErr(b *bench) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range b.n {
		ctx.Err()
	}
}

func checkCanceledDone(b *bench) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range b.n {
		select {
		case <-ctx.Done():
		default:
		}
	}
}

func contextCancelDone(b *bench) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.runNumbered(func(_ int, p *portion) {
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				select {
				case <-ctx.Done():
				default:
				}
			}
		}
	})
}

func deepContext(depth int) context.Context {
	ctx := context.Background()
	for i := range depth {
		ctx = context.WithValue(ctx, i, i)
	}
	return ctx
}

func deepValueNewGoRoutine(b *bench, depth int) {
	ctx := deepContext(depth)
	b.resetTimer()
	for range b.n {
		var done sync.WaitGroup
		done.Add(1)
		go func() {
			defer done.Done()
			ctx.Value(-1)
		}()
		done.Wait()
	}
}

func deepValueSameGoRoutine(b *bench, depth int) {
	ctx := deepContext(depth)
	b.resetTimer()
	for range b.n {
		ctx.Value(-1)
	}
}

func errOK(b *bench) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for range b.n {
		check(ctx.Err() == nil)
	}
}

func errCanceled(b *bench) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range b.n {
		check(ctx.Err() != nil)
	}
}
