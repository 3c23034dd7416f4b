package main

import (
	"fmt"
	"io"
	"net"
	"os"
)

// serveEcho is Go's side of netbench: prints its port, and sends back what comes in, until its input ends.
func serveEcho() {
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
			go echo(conn)
		}
	}()
	io.Copy(io.Discard, os.Stdin)
}

func echo(conn net.Conn) {
	defer conn.Close()
	buf := make([]byte, 1024)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		if _, err := conn.Write(buf[:n]); err != nil {
			return
		}
	}
}
