// A client of grpc-go in a closed loop: see ../README.md for its flags and its line of JSON.
//
// A goroutine for each call in flight, and generated stubs: the way of the grpc-go documentation. No call has a deadline.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"pelton.example/peers/grpc-go-client/peltonv1"
	"pelton.example/peers/grpc-go-client/ydbping"
)

const connectTimeout = 10 * time.Second

type options struct {
	address     string
	method      string
	inFlight    int
	channels    int
	channelArgs string
	keys        uint64
	warmUp      float64
	seconds     float64
	serverPid   int
}

func parse() (options, error) {
	var o options
	flag.StringVar(&o.address, "address", "127.0.0.1:1978", "the server")
	flag.StringVar(&o.method, "method", "get", "what is called: get or ping")
	flag.IntVar(&o.inFlight, "in-flight", 1, "calls in flight, over all channels")
	flag.IntVar(&o.channels, "channels", 1, "channels")
	flag.StringVar(&o.channelArgs, "channel-args", "same", "same or distinct: no difference here, each channel has its own connection")
	flag.Uint64Var(&o.keys, "keys", 100_000, "get: keys are numbered from 0 to this less 1")
	flag.Float64Var(&o.warmUp, "warm-up", 0.5, "seconds before measuring")
	flag.Float64Var(&o.seconds, "seconds", 2, "seconds to measure")
	flag.IntVar(&o.serverPid, "server-pid", 0, "count the CPU time of this process, too")
	flag.Parse()
	switch {
	case o.inFlight < 1 || o.channels < 1 || o.keys < 1:
		return o, errors.New("numbers begin at 1")
	case o.method != "get" && o.method != "ping":
		return o, fmt.Errorf("unknown -method %s", o.method)
	case o.channelArgs != "same" && o.channelArgs != "distinct":
		return o, fmt.Errorf("unknown -channel-args %s", o.channelArgs)
	}
	return o, nil
}

func connect(o options) ([]*grpc.ClientConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	var channels []*grpc.ClientConn
	for range o.channels {
		channel, err := grpc.NewClient(o.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		channel.Connect()
		for state := channel.GetState(); state != connectivity.Ready; state = channel.GetState() {
			if !channel.WaitForStateChange(ctx, state) {
				return nil, fmt.Errorf("no connection to %s: %v", o.address, state)
			}
		}
		channels = append(channels, channel)
	}
	return channels, nil
}

// The key of this number, as `pelton load` names its keys.
func key(number uint64) []byte {
	for _, factor := range []uint64{0xbf58476d1ce4e5b9, 0x94d049bb133111eb} {
		number = (number ^ number>>32) * factor
	}
	number ^= number >> 32
	digits := make([]byte, 16)
	for i := range digits {
		digits[i] = "0123456789abcdef"[number>>(60-4*i)&15]
	}
	return digits
}

// Makes one call.
type call func(random *rand.Rand) error

func callOn(channel *grpc.ClientConn, o options) call {
	if o.method == "ping" {
		stub := ydbping.NewDebugServiceClient(channel)
		return func(*rand.Rand) error {
			_, err := stub.PingPlainGrpc(context.Background(), &ydbping.PlainGrpcRequest{})
			return err
		}
	}
	stub := peltonv1.NewKeyValueClient(channel)
	return func(random *rand.Rand) error {
		response, err := stub.Get(context.Background(), &peltonv1.GetRequest{Key: key(random.Uint64N(o.keys))})
		if err == nil && !response.Found {
			err = errors.New("the key was not found")
		}
		return err
	}
}

// A moment of the measurement.
type mark struct {
	time     time.Time
	ownNs    int64
	serverNs int64
}

func markNow(serverPid int) mark {
	var usage syscall.Rusage
	// It fails only for a pointer or a word that is wrong.
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return mark{time.Now(), usage.Utime.Nano() + usage.Stime.Nano(), processNs(serverPid)}
}

// CPU time of all threads of a process, in nanoseconds.
func processNs(pid int) int64 {
	var total int64
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, file := range files {
		var one int64
		if text, err := os.ReadFile(file); err == nil {
			fmt.Sscan(string(text), &one)
			total += one
		}
	}
	return total
}

const (
	warmUp = iota
	measure
	drain
)

// What all places share.
type loop struct {
	phase        atomic.Int32
	failures     atomic.Int64
	firstFailure atomic.Pointer[string]
}

// Keeps one call in flight; returns the latencies of what was measured, in nanoseconds.
func (l *loop) place(do call, seed uint64) []int64 {
	var latencies []int64
	random := rand.New(rand.NewPCG(seed, 0))
	for l.phase.Load() != drain {
		begun := time.Now()
		err := do(random)
		if err != nil {
			text := err.Error()
			l.firstFailure.CompareAndSwap(nil, &text)
			l.failures.Add(1)
		} else if l.phase.Load() == measure {
			latencies = append(latencies, int64(time.Since(begun)))
		}
	}
	return latencies
}

func run(o options) error {
	channels, err := connect(o)
	if err != nil {
		return err
	}
	var l loop
	var places sync.WaitGroup
	parts := make([][]int64, o.inFlight)
	for i := range o.inFlight {
		do := callOn(channels[i%len(channels)], o)
		places.Go(func() { parts[i] = l.place(do, uint64(i)) })
	}
	seconds := func(count float64) time.Duration { return time.Duration(count * float64(time.Second)) }
	time.Sleep(seconds(o.warmUp))
	begin := markNow(o.serverPid)
	l.phase.Store(measure)
	time.Sleep(seconds(o.seconds))
	l.phase.Store(drain)
	end := markNow(o.serverPid)
	places.Wait()
	return l.print(o, slices.Concat(parts...), begin, end)
}

func (l *loop) print(o options, latencies []int64, begin, end mark) error {
	slices.Sort(latencies)
	percentile := func(share float64) float64 {
		if len(latencies) == 0 {
			return 0
		}
		return float64(latencies[min(len(latencies)-1, int(share*float64(len(latencies))))]) / 1e3
	}
	calls := max(1, float64(len(latencies)))
	figures := map[string]any{
		"client": "grpc-go " + grpc.Version, "method": o.method, "in_flight": o.inFlight,
		"channels": o.channels, "channel_args": o.channelArgs,
		"calls": len(latencies), "failures": l.failures.Load(), "first_failure": "",
		"elapsed_s":   end.time.Sub(begin.time).Seconds(),
		"calls_per_s": float64(len(latencies)) / end.time.Sub(begin.time).Seconds(),
		"p50_us":      percentile(0.5), "p99_us": percentile(0.99), "max_us": percentile(1),
		"own_us": float64(end.ownNs-begin.ownNs) / 1e3 / calls,
	}
	if text := l.firstFailure.Load(); text != nil {
		figures["first_failure"] = *text
	}
	if o.serverPid != 0 {
		figures["server_us"] = float64(end.serverNs-begin.serverNs) / 1e3 / calls
	}
	if err := json.NewEncoder(os.Stdout).Encode(figures); err != nil {
		return err
	}
	if l.failures.Load() > 0 {
		return errors.New("calls failed")
	}
	return nil
}

func main() {
	o, err := parse()
	if err == nil {
		err = run(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "grpc-go-client:", err)
		os.Exit(1)
	}
}
