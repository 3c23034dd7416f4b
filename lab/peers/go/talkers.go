package main

import "sync"

var talkerCases = []benchCase{
	{name: "PubSub", body: pubSub},
	{name: "Broadcast", body: broadcast},
	{name: "ActorRing", body: actorRing},
	{name: "OneServer", body: oneServer},
}

const (
	subscribers = 8
	publishers  = 4
	clients     = 8
)

// Four publishers send each value to all of eight subscribers, under a read lock.
func pubSub(b *bench) {
	var mu sync.RWMutex
	var all []chan uint64
	var sent, received sync.WaitGroup
	received.Add(subscribers)
	for range subscribers {
		subscriber := make(chan uint64, 16)
		all = append(all, subscriber)
		go func() {
			for range subscriber {
			}
			received.Done()
		}()
	}
	sent.Add(publishers)
	for publisher := range publishers {
		n := (b.n + publisher) / publishers
		go func() {
			for value := range n {
				mu.RLock()
				for _, subscriber := range all {
					subscriber <- uint64(value)
				}
				mu.RUnlock()
			}
			sent.Done()
		}()
	}
	sent.Wait()
	for _, subscriber := range all {
		close(subscriber)
	}
	received.Wait()
}

// One sender sends each value to all of eight receivers.
func broadcast(b *bench) {
	var all []chan uint64
	var done sync.WaitGroup
	done.Add(subscribers)
	for range subscribers {
		receiver := make(chan uint64)
		all = append(all, receiver)
		go func() {
			for range receiver {
			}
			done.Done()
		}()
	}
	for value := range b.n {
		for _, receiver := range all {
			receiver <- uint64(value)
		}
	}
	for _, receiver := range all {
		close(receiver)
	}
	done.Wait()
}

// A value goes once around a ring of eight actors.
func actorRing(b *bench) {
	first := make(chan uint64, 1)
	last := first
	for range clients {
		from, to := last, make(chan uint64, 1)
		go func() {
			for value := range from {
				to <- steps(localSteps, value)
			}
			close(to)
		}()
		last = to
	}
	for value := range b.n {
		first <- uint64(value)
		<-last
	}
	close(first)
	<-last
}

// A request of one of eight clients to one server, and the answer.
func oneServer(b *bench) {
	requests := make(chan uint64)
	var answers [clients]chan uint64
	for client := range answers {
		answers[client] = make(chan uint64)
	}
	go func() {
		for client := range requests {
			answers[client] <- steps(localSteps, client)
		}
	}()
	var done sync.WaitGroup
	done.Add(clients)
	for client := range clients {
		n := (b.n + client) / clients
		go func() {
			for range n {
				requests <- uint64(client)
				<-answers[client]
			}
			done.Done()
		}()
	}
	done.Wait()
	close(requests)
}
