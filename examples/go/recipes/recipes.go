// A client that makes many calls at once: connections, calls in flight, deadlines, message size, windows.
// See docs/recipes.md.
//
//	recipes                                                    tries each recipe
//	recipes CONNECTIONS IN-FLIGHT CALLS [WINDOW-BYTES] [KEY]   measures; a window of 0 is left to the library
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	pb "pelton.example/tour/gen/pelton/v1"
)

// Pool spreads calls over several connections, and makes only so many at a time.
type Pool struct {
	connections []*grpc.ClientConn
	stores      []pb.KeyValueClient
	next        atomic.Uint64
	free        chan struct{}
}

// NewPool makes a pool. A window of 0 bytes grows by itself with what the connection carries.
func NewPool(address string, connections, inFlight, maxMessageBytes int, windowBytes int32) (*Pool, error) {
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)),
		// Notices a peer that is gone without a word while calls wait for it.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second}),
	}
	if windowBytes > 0 {
		options = append(options, grpc.WithInitialWindowSize(windowBytes), grpc.WithInitialConnWindowSize(windowBytes))
	}
	pool := &Pool{free: make(chan struct{}, inFlight)}
	for range connections {
		connection, err := grpc.NewClient(address, options...)
		if err != nil {
			return nil, err
		}
		pool.connections = append(pool.connections, connection)
		pool.stores = append(pool.stores, pb.NewKeyValueClient(connection))
	}
	return pool, nil
}

// Get waits for a free place, as long as ctx allows, and then at most ten seconds for the answer.
func (pool *Pool) Get(ctx context.Context, key []byte) (*pb.GetResponse, error) {
	select {
	case pool.free <- struct{}{}:
		defer func() { <-pool.free }()
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	store := pool.stores[pool.next.Add(1)%uint64(len(pool.stores))]
	return store.Get(ctx, &pb.GetRequest{Key: key})
}

// Close ends all connections.
func (pool *Pool) Close() {
	for _, connection := range pool.connections {
		connection.Close()
	}
}

// Makes so many calls from as many goroutines as may be in flight; their latencies, sorted.
func many(pool *Pool, calls int, key []byte) []time.Duration {
	latencies := make([]time.Duration, calls)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range cap(pool.free) {
		workers.Go(func() {
			for call := next.Add(1) - 1; call < int64(calls); call = next.Add(1) - 1 {
				begin := time.Now()
				if _, err := pool.Get(context.Background(), key); err != nil {
					log.Fatal(err)
				}
				latencies[call] = time.Since(begin)
			}
		})
	}
	workers.Wait()
	slices.Sort(latencies)
	return latencies
}

func tryRecipes(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	pool, err := NewPool(address, 4, 64, 4<<20, 0)
	if err != nil {
		return err
	}
	defer pool.Close()
	store := pool.stores[0]
	if _, err := store.Put(ctx, &pb.PutRequest{Key: []byte("greeting"), Value: []byte("hello")}); err != nil {
		return err
	}
	fmt.Println(len(many(pool, 2000, []byte("greeting"))), "answers")
	statistics, err := pb.NewAdminClient(pool.connections[0]).Statistics(ctx, &pb.StatisticsRequest{})
	if err != nil {
		return err
	}
	fmt.Println(statistics.OpenConnections, "connections")

	soon, cancelSoon := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancelSoon()
	_, err = pb.NewEchoClient(pool.connections[0]).Unary(soon, &pb.EchoRequest{DelayMs: 10_000})
	fmt.Println("no answer in 100 ms:", status.Code(err))

	if _, err := store.Put(ctx, &pb.PutRequest{Key: []byte("large"), Value: make([]byte, 5_000_000)}); err != nil {
		return err
	}
	_, err = pool.Get(ctx, []byte("large"))
	fmt.Println("5 MB:", status.Code(err))
	large, err := NewPool(address, 1, 64, 9<<20, 1<<20)
	if err != nil {
		return err
	}
	defer large.Close()
	_, err = large.Get(ctx, []byte("large"))
	fmt.Println("5 MB with a higher limit:", status.Code(err))
	return nil
}

func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func measure(address string, connections, inFlight, calls, windowBytes int, key string) error {
	pool, err := NewPool(address, connections, inFlight, 9<<20, int32(windowBytes))
	if err != nil {
		return err
	}
	defer pool.Close()
	many(pool, min(calls, 10*inFlight), []byte(key)) // connects, and lets windows grow
	begin, cpu := time.Now(), cpuTime()
	latencies := many(pool, calls, []byte(key))
	seconds, cpu := time.Since(begin).Seconds(), cpuTime()-cpu
	fmt.Printf("%.0f calls/s, p50 %d µs, p99 %d µs, %.1f µs of CPU per call\n", float64(calls)/seconds,
		latencies[calls/2].Microseconds(), latencies[calls*99/100].Microseconds(),
		float64(cpu.Nanoseconds())/1000/float64(calls))
	return nil
}

func main() {
	address := os.Getenv("PELTON_ADDRESS")
	if address == "" {
		address = "127.0.0.1:1978"
	}
	var numbers [4]int
	key := "greeting"
	for i, argument := range os.Args[1:] {
		if i == len(numbers) {
			key = argument
			break
		}
		number, err := strconv.Atoi(argument)
		if err != nil {
			log.Fatal(err)
		}
		numbers[i] = number
	}
	var err error
	if len(os.Args) > 1 {
		err = measure(address, numbers[0], numbers[1], numbers[2], numbers[3], key)
	} else {
		err = tryRecipes(address)
	}
	if err != nil {
		log.Fatal(err)
	}
}
