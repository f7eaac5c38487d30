// Load puts one kind of work on a Kubernetes API server over HTTP/1.1 and prints what it measured as one JSON object.
//
//	load -url U -token T -ca FILE -work create|get|patch|list|watch -path P [-count N] [-at-once N] [-body JSON] [-names N]
//
// The path is that of a collection; objects are called o0, o1, ... Times are in milliseconds. `watch` opens -at-once
// watches on the collection, patches -count objects' status at -rate a second, and measures from sending the write to each
// watcher's line.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var (
	url    = flag.String("url", "", "server")
	token  = flag.String("token", "", "bearer token")
	ca     = flag.String("ca", "", "file of the CA")
	work   = flag.String("work", "get", "what to do")
	path   = flag.String("path", "", "collection")
	body   = flag.String("body", "", "object to create, NAME is replaced")
	count  = flag.Int("count", 1000, "how many requests")
	atOnce = flag.Int("at-once", 16, "how many at once")
	names  = flag.Int("names", 200, "how many different objects")
	rate   = flag.Float64("rate", 20, "writes a second, while watching")
)

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}

func newClient() *http.Client {
	pem, err := os.ReadFile(*ca)
	if err != nil {
		fail("%v", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: pool},
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{}, // HTTP/1.1 on both servers
		MaxIdleConnsPerHost: 1000,
		DisableCompression:  true,
	}}
}

func send(client *http.Client, method, where, kind, text string) (*http.Response, error) {
	request, err := http.NewRequest(method, *url+where, strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+*token)
	request.Header.Set("Accept", "application/json")
	if kind != "" {
		request.Header.Set("Content-Type", kind)
	}
	return client.Do(request)
}

// whole sends and reads the whole answer; the number of bytes read.
func whole(client *http.Client, method, where, kind, text string) int64 {
	answer, err := send(client, method, where, kind, text)
	if err != nil {
		fail("%s %s: %v", method, where, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 300 {
		said, _ := io.ReadAll(answer.Body)
		fail("%s %s: %d %.300s", method, where, answer.StatusCode, said)
	}
	read, err := io.Copy(io.Discard, answer.Body)
	if err != nil {
		fail("%s %s: %v", method, where, err)
	}
	return read
}

func one(client *http.Client, i int) int64 {
	name := fmt.Sprintf("o%d", i)
	switch *work {
	case "create":
		return whole(client, "POST", *path, "application/json", strings.ReplaceAll(*body, "NAME", name))
	case "get":
		return whole(client, "GET", fmt.Sprintf("%s/o%d", *path, i%*names), "", "")
	case "patch":
		text := fmt.Sprintf(`{"spec":{"note":"n%d"}}`, i)
		return whole(client, "PATCH", fmt.Sprintf("%s/o%d", *path, i%*names), "application/merge-patch+json", text)
	default:
		return whole(client, "GET", *path, "", "")
	}
}

func at(sorted []float64, part float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(part*float64(len(sorted)-1))]
}

func report(took []float64, seconds float64, more map[string]any) {
	sort.Float64s(took)
	more["rate"] = float64(len(took)) / seconds
	more["p50"], more["p99"] = at(took, 0.5), at(took, 0.99)
	_ = json.NewEncoder(os.Stdout).Encode(more)
}

func many() {
	client := newClient()
	took := make([]float64, *count)
	var next, read atomic.Int64
	var group sync.WaitGroup
	begun := time.Now()
	for range *atOnce {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := int(next.Add(1)) - 1; i < *count; i = int(next.Add(1)) - 1 {
				sent := time.Now()
				read.Add(one(client, i))
				took[i] = float64(time.Since(sent).Microseconds()) / 1000
			}
		}()
	}
	group.Wait()
	report(took, time.Since(begun).Seconds(), map[string]any{"bytes": read.Load()})
}

func watch() {
	client := newClient()
	sent := make([]atomic.Int64, *count)
	var mutex sync.Mutex
	var took []float64
	var ready, done sync.WaitGroup
	for range *atOnce {
		ready.Add(1)
		done.Add(1)
		go func() {
			defer done.Done()
			answer, err := send(client, "GET", *path+"?watch=true&resourceVersion="+*body, "", "")
			if err != nil || answer.StatusCode != 200 {
				fail("watch: %v %v", err, answer)
			}
			defer answer.Body.Close()
			ready.Done()
			lines := bufio.NewReaderSize(answer.Body, 1<<20)
			for seen := 0; seen < *count; {
				line, err := lines.ReadBytes('\n')
				now := time.Now().UnixMicro()
				if err != nil {
					return
				}
				_, rest, found := bytes.Cut(line, []byte(`"beat":`))
				if !found {
					continue
				}
				var beat int
				if _, err := fmt.Sscanf(string(rest), "%d", &beat); err != nil {
					fail("%v", err)
				}
				seen++
				mutex.Lock()
				took = append(took, float64(now-sent[beat].Load())/1000)
				mutex.Unlock()
			}
		}()
	}
	ready.Wait()
	begun := time.Now()
	for i := range *count {
		time.Sleep(time.Until(begun.Add(time.Duration(float64(i) / *rate * float64(time.Second)))))
		sent[i].Store(time.Now().UnixMicro())
		text := fmt.Sprintf(`{"status":{"beat":%d}}`, i)
		whole(client, "PATCH", fmt.Sprintf("%s/o%d/status", *path, i%*names), "application/merge-patch+json", text)
	}
	finished := make(chan struct{})
	go func() { done.Wait(); close(finished) }()
	select {
	case <-finished:
	case <-time.After(20 * time.Second):
	}
	mutex.Lock()
	defer mutex.Unlock()
	report(took, time.Since(begun).Seconds(), map[string]any{"lost": *count**atOnce - len(took)})
}

func main() {
	flag.Parse()
	if *work == "watch" {
		watch()
	} else {
		many()
	}
}
