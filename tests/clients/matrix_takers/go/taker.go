// go-zookeeper as a client of the matrix (tests/clients/matrix): taker HOST:PORT.
// interop/src/taker/main.rs has the orders and the answers.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/samuel/go-zookeeper/zk"
)

var output sync.Mutex

func say(id, what string) {
	output.Lock()
	defer output.Unlock()
	fmt.Printf("%s %s\n", id, strings.ReplaceAll(what, "\n", " "))
}

func take(conn *zk.Conn, id, path string, release chan struct{}) {
	lock := zk.NewLock(conn, path, zk.WorldACL(zk.PermAll))
	if err := lock.Lock(); err != nil {
		say(id, "failed "+err.Error())
		return
	}
	say(id, "held")
	<-release
	if err := lock.Unlock(); err != nil {
		say(id, "failed "+err.Error())
		return
	}
	say(id, "released")
}

type quiet struct{}

func (quiet) Printf(string, ...interface{}) {}

func main() {
	conn, _, err := zk.Connect([]string{os.Args[1]}, 15*time.Second)
	if err != nil {
		panic(err)
	}
	conn.SetLogger(quiet{})
	releases := map[string]chan struct{}{}
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		words := strings.Fields(orders.Text())
		id := words[1]
		if words[0] == "release" {
			close(releases[id])
			continue
		}
		releases[id] = make(chan struct{})
		go take(conn, id, words[3], releases[id])
	}
}
