// A server and a client of grpc-go in which one cause of slowness is planted: `pelton lab diagnose` has to name it. See
// ../README.md.
//
// Messages are bytes, whatever the method: the server answers each with itself.
package main

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Bytes that a hash of the flag -hashes takes.
const hashedBytes = 4096

var (
	target   = flag.String("call", "", "client: the server; without it, this is a server")
	inFlight = flag.Int("in-flight", 16, "client: calls that are open at most")
	calls    = flag.Int("calls", 1000, "client: calls in all")
	payload  = flag.Int("payload", 0, "client: bytes of each request, for a server of this program")
	pause    = flag.Duration("pause", 0, "wait so long in each call, or between two calls of a client")
	lock     = flag.Bool("lock", false, "server: one call after the other")
	pool     = flag.Int("pool", 0, "server: so many calls at a time")
	streams  = flag.Uint("streams", 0, "server: the limit on concurrent streams")
	window   = flag.Int("window", 0, "bytes of the windows of a stream and of the connection")
	hashes   = flag.Int("hashes", 0, "hash so many blocks for each call")
	syncFile = flag.String("sync", "", "server: write to this file and sync it in each call, one after the other")
)

// rawCodec leaves messages as they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(message any) ([]byte, error) {
	bytes, ok := message.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("%T is not bytes", message)
	}
	return *bytes, nil
}

func (rawCodec) Unmarshal(data []byte, message any) error {
	bytes, ok := message.(*[]byte)
	if !ok {
		return fmt.Errorf("%T is not bytes", message)
	}
	*bytes = append((*bytes)[:0], data...)
	return nil
}

func burn() {
	var block [hashedBytes]byte
	for range *hashes {
		sum := sha256.Sum256(block[:])
		copy(block[:], sum[:])
	}
}

// worker returns what each call of the server does.
func worker() (func() error, error) {
	var mutex sync.Mutex
	places := make(chan struct{}, max(*pool, 1))
	var file *os.File
	if *syncFile != "" {
		created, err := os.Create(*syncFile)
		if err != nil {
			return nil, err
		}
		file = created
	}
	return func() error {
		if *pool > 0 {
			places <- struct{}{}
			defer func() { <-places }()
		}
		if *lock || file != nil {
			mutex.Lock()
			defer mutex.Unlock()
		}
		time.Sleep(*pause)
		burn()
		if file == nil {
			return nil
		}
		if _, err := file.Write(make([]byte, 100)); err != nil {
			return err
		}
		return file.Sync()
	}, nil
}

func serverOptions() []grpc.ServerOption {
	options := []grpc.ServerOption{grpc.ForceServerCodec(rawCodec{})}
	if *streams > 0 {
		options = append(options, grpc.MaxConcurrentStreams(uint32(*streams)))
	}
	if *window > 0 {
		options = append(options, grpc.StaticStreamWindowSize(int32(*window)), grpc.StaticConnWindowSize(int32(*window)))
	}
	return options
}

func serve() error {
	work, err := worker()
	if err != nil {
		return err
	}
	handler := func(_ any, stream grpc.ServerStream) error {
		var message []byte
		if err := stream.RecvMsg(&message); err != nil {
			return err
		}
		if err := work(); err != nil {
			return err
		}
		return stream.SendMsg(&message)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("listening on", listener.Addr())
	return grpc.NewServer(append(serverOptions(), grpc.UnknownServiceHandler(handler))...).Serve(listener)
}

func call() error {
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{})),
	}
	channel, err := grpc.NewClient(*target, options...)
	if err != nil {
		return err
	}
	defer channel.Close()
	work := make(chan struct{})
	failed := make(chan error, *inFlight)
	for range *inFlight {
		go func() {
			for range work {
				request, answer := make([]byte, *payload), []byte(nil)
				if err := channel.Invoke(context.Background(), "/pelton.v1.Echo/Unary", &request, &answer); err != nil {
					failed <- err
					return
				}
				burn()
				time.Sleep(*pause)
			}
			failed <- nil
		}()
	}
	for range *calls {
		select {
		case work <- struct{}{}:
		case err := <-failed:
			return err
		}
	}
	close(work)
	for range *inFlight {
		if err := <-failed; err != nil {
			return err
		}
	}
	return nil
}

func main() {
	flag.Parse()
	run := serve
	if *target != "" {
		run = call
	}
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
