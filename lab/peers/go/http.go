package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// message is the object of a JSON response.
type message struct {
	Message string `json:"message"`
}

// serveHTTP is Go's side of netbench with the protocol http or json: prints its port, and serves until its input ends.
func serveHTTP(protocol string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			time.Sleep(100 * time.Millisecond)
		}
		if protocol == "json" {
			body, err := json.Marshal(message{"Hello, World!"})
			if err != nil {
				panic(err)
			}
			w.Header().Set("Content-Type", "application/json")
			w.Write(body)
			return
		}
		w.Header().Set("Content-Type", "text/plain")
		io.WriteString(w, "Hello, World!")
	}))
	io.Copy(io.Discard, os.Stdin)
}
