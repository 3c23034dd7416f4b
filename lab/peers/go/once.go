package main

import (
	"sync"
	"sync/atomic"
)

var onceCases = []benchCase{
	{name: "Once", body: once},
	{name: "OnceFuncOnce", body: onceFuncOnce},
	{name: "OnceFuncGlobal", body: onceFuncGlobal},
	{name: "OnceFuncLocal", body: onceFuncLocal},
	{name: "OnceFuncMake", body: onceFuncMake},
	{name: "OnceValueOnce", body: onceValueOnce},
	{name: "OnceValueGlobal", body: onceValueGlobal},
	{name: "OnceValueLocal", body: onceValueLocal},
	{name: "OnceValueMake", body: onceValueMake},
	{name: "OnceValuesOnce", body: onceValuesOnce},
	{name: "OnceValuesGlobal", body: onceValuesGlobal},
	{name: "OnceValuesLocal", body: onceValuesLocal},
	{name: "OnceValuesMake", body: onceValuesMake},
	{name: "ValueRead", body: valueRead},
}

func check(ok bool) {
	if !ok {
		panic("a wrong value")
	}
}

// One for all, that has run.
func once(b *bench) {
	var once sync.Once
	f := func() {}
	b.runNumbered(func(_ int, p *portion) {
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				once.Do(f)
			}
		}
	})
}

// Globals, as a program has them: what they hold is not known to the compiler.
var (
	theOnce     sync.Once
	theFunc     = sync.OnceFunc(func() {})
	theFuncMade func()

	theValueOnce sync.Once
	theValue     int
	theValueFunc = sync.OnceValue(func() int { return 42 })
	theValueMade func() int

	theValuesOnce sync.Once
	theFirst      int
	theSecond     bool
	theValuesFunc = sync.OnceValues(func() (int, bool) { return 42, true })
	theValuesMade func() (int, bool)
)

func onceFuncOnce(b *bench) {
	for range b.n {
		theOnce.Do(func() {})
	}
}

func onceFuncGlobal(b *bench) {
	for range b.n {
		theFunc()
	}
}

func onceFuncLocal(b *bench) {
	f := sync.OnceFunc(func() {})
	for range b.n {
		f()
	}
}

func onceFuncMake(b *bench) {
	for range b.n {
		theFuncMade = sync.OnceFunc(func() {})
	}
}

func onceValueOnce(b *bench) {
	for range b.n {
		theValueOnce.Do(func() { theValue = 42 })
		check(theValue == 42)
	}
}

func onceValueGlobal(b *bench) {
	for range b.n {
		check(theValueFunc() == 42)
	}
}

func onceValueLocal(b *bench) {
	f := sync.OnceValue(func() int { return 42 })
	for range b.n {
		check(f() == 42)
	}
}

func onceValueMake(b *bench) {
	for range b.n {
		theValueMade = sync.OnceValue(func() int { return 42 })
	}
}

func onceValuesOnce(b *bench) {
	for range b.n {
		theValuesOnce.Do(func() { theFirst, theSecond = 42, true })
		check(theFirst == 42 && theSecond)
	}
}

func onceValuesGlobal(b *bench) {
	for range b.n {
		first, second := theValuesFunc()
		check(first == 42 && second)
	}
}

func onceValuesLocal(b *bench) {
	f := sync.OnceValues(func() (int, bool) { return 42, true })
	for range b.n {
		first, second := f()
		check(first == 42 && second)
	}
}

func onceValuesMake(b *bench) {
	for range b.n {
		theValuesMade = sync.OnceValues(func() (int, bool) { return 42, true })
	}
}

// One for all, which no goroutine writes.
func valueRead(b *bench) {
	var v atomic.Value
	v.Store(new(int))
	b.runNumbered(func(_ int, p *portion) {
		for n := p.take(); n > 0; n = p.take() {
			for range n {
				check(*v.Load().(*int) == 0)
			}
		}
	})
}
