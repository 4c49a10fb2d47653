// A tour of Pelton's API from Go. docs/go.md explains it, and says how to run it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "pelton.example/tour/gen/pelton/v1"
)

func values(ctx context.Context, store pb.KeyValueClient) error {
	if _, err := store.Put(ctx, &pb.PutRequest{Key: []byte("greeting"), Value: []byte("hello")}); err != nil {
		return err
	}
	answer, err := store.Get(ctx, &pb.GetRequest{Key: []byte("greeting")})
	if err != nil {
		return err
	}
	fmt.Printf("greeting is %s\n", answer.Value)

	answer, err = store.Get(ctx, &pb.GetRequest{Key: []byte("nobody")})
	if err != nil {
		return err
	}
	if !answer.Found {
		fmt.Println("nobody is not there")
	}
	return nil
}

func conditions(ctx context.Context, store pb.KeyValueClient) error {
	// Only if there is no such key.
	claim, err := store.Put(ctx, &pb.PutRequest{
		Key: []byte("leader"), Value: []byte("alice"), Condition: &pb.PutRequest_IfExists{IfExists: false},
	})
	if err != nil {
		return err
	}
	if claim.Applied {
		fmt.Println("alice leads")
	}

	// Only if nobody has written since.
	for _, name := range []string{"bob", "eve"} {
		answer, err := store.Put(ctx, &pb.PutRequest{
			Key: []byte("leader"), Value: []byte(name), Condition: &pb.PutRequest_IfVersion{IfVersion: claim.Version},
		})
		if err != nil {
			return err
		}
		if !answer.Applied {
			fmt.Println(name, "is too late")
		}
	}
	return nil
}

func numbers(ctx context.Context, store pb.KeyValueClient) error {
	var visits int64
	for range 3 {
		answer, err := store.Increment(ctx, &pb.IncrementRequest{Key: []byte("visits"), Delta: 1})
		if err != nil {
			return err
		}
		visits = answer.Value
	}
	fmt.Println("visits:", visits)

	answer, err := store.Increment(ctx, &pb.IncrementRequest{Key: []byte("greeting"), Delta: 1})
	if err != nil {
		return err
	}
	if !answer.Applied {
		fmt.Println("greeting:", answer.Refusal)
	}
	return nil
}

func put(key, value string) *pb.Operation {
	return &pb.Operation{Operation: &pb.Operation_Put_{Put: &pb.Operation_Put{Key: []byte(key), Value: []byte(value)}}}
}

func batch(ctx context.Context, store pb.KeyValueClient) error {
	cities := []*pb.Operation{put("city/oslo", "709000"), put("city/paris", "2100000"), put("city/rome", "2800000")}
	answer, err := store.Batch(ctx, &pb.BatchRequest{Operations: cities})
	if err != nil {
		return err
	}
	fmt.Println(len(answer.Results), "cities stored")

	// All or nothing: the second operation fails, so the first one is not done either.
	rome := put("city/rome", "0")
	rome.GetPut().Condition = &pb.Operation_Put_IfExists{IfExists: false}
	answer, err = store.Batch(ctx, &pb.BatchRequest{Operations: []*pb.Operation{put("city/bonn", "336000"), rome}})
	if err != nil {
		return err
	}
	if !answer.Applied {
		fmt.Println("nothing was done, because of operation", answer.FailedOperation)
	}
	return nil
}

func transact(ctx context.Context, store pb.KeyValueClient) error {
	nextTerm := &pb.Operation_Increment{Key: []byte("term"), Delta: 1}
	readLeader := &pb.Operation_Get{Key: []byte("leader")}
	request := &pb.TransactRequest{
		Comparisons: []*pb.Comparison{
			{Key: []byte("leader"), Condition: &pb.Comparison_Value{Value: []byte("bob")}},
			{Key: []byte("election"), Condition: &pb.Comparison_Exists{Exists: false}},
		},
		WhenMet: []*pb.Operation{
			put("leader", "carol"),
			{Operation: &pb.Operation_Increment_{Increment: nextTerm}},
		},
		WhenUnmet: []*pb.Operation{{Operation: &pb.Operation_Get_{Get: readLeader}}},
	}
	for range 2 {
		answer, err := store.Transact(ctx, request)
		if err != nil {
			return err
		}
		results := answer.Batch.Results
		if answer.Met {
			fmt.Println("carol leads in term", results[1].GetIncrement().Value)
		} else {
			fmt.Printf("comparison %d was not met: %s leads\n", answer.UnmetComparison, results[0].GetGet().Value)
		}
	}
	return nil
}

// Calls visit for each entry of all pages.
func scan(ctx context.Context, store pb.KeyValueClient, request *pb.ScanRequest, visit func(*pb.Entry)) error {
	// Ends the call on the server, too, if this returns early.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pages, err := store.Scan(ctx, request)
	if err != nil {
		return err
	}
	for {
		page, err := pages.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, entry := range page.Entries {
			visit(entry)
		}
	}
}

func ranges(ctx context.Context, store pb.KeyValueClient) error {
	cities := &pb.ScanRequest{Keys: &pb.ScanRequest_Prefix{Prefix: []byte("city/")}}
	err := scan(ctx, store, cities, func(entry *pb.Entry) { fmt.Printf("%s %s\n", entry.Key, entry.Value) })
	if err != nil {
		return err
	}

	// The last key below `city/paris`, without its value.
	below := &pb.ScanRequest{
		Keys:      &pb.ScanRequest_Range{Range: &pb.KeyRange{Start: []byte("city/"), End: []byte("city/paris")}},
		Direction: pb.Direction_DIRECTION_BACKWARD,
		Limit:     1,
		KeysOnly:  true,
	}
	err = scan(ctx, store, below, func(entry *pb.Entry) { fmt.Printf("before paris: %s\n", entry.Key) })
	if err != nil {
		return err
	}

	answer, err := store.Count(ctx, &pb.CountRequest{Keys: &pb.CountRequest_Prefix{Prefix: []byte("city/")}})
	if err != nil {
		return err
	}
	fmt.Println(answer.Count, "cities")
	return nil
}

func pipe(ctx context.Context, store pb.KeyValueClient) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := store.Pipe(ctx)
	if err != nil {
		return err
	}
	// Sends on its own, while the answers are read below.
	go func() {
		for start := 0; start < 10_000; start += 1000 {
			request := &pb.PipeRequest{
				Mode:    pb.BatchMode_BATCH_MODE_INDEPENDENT,
				Answers: pb.PipeAnswers_PIPE_ANSWERS_FAILURES_ONLY,
			}
			for row := start; row < start+1000; row++ {
				request.Operations = append(request.Operations, put(fmt.Sprintf("row/%05d", row), "..."))
			}
			if stream.Send(request) != nil {
				return // why, Recv says
			}
		}
		_ = stream.CloseSend() // always nil
	}()

	var done uint64
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		done = answer.Done
		if answer.BatchNumber != 0 {
			fmt.Println("batch", answer.BatchNumber, "failed:", answer.Failure, answer.Batch)
		}
	}
	fmt.Println(done, "batches are done")
	return nil
}

func timeToLive(ctx context.Context, store pb.KeyValueClient) error {
	_, err := store.Put(ctx, &pb.PutRequest{
		Key: []byte("session"), Value: []byte("..."), Expiry: &pb.PutRequest_TimeToLiveMs{TimeToLiveMs: 200},
	})
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		answer, err := store.Get(ctx, &pb.GetRequest{Key: []byte("session")})
		if err != nil {
			return err
		}
		if first && answer.ExpiresAtMs != 0 {
			fmt.Println("the session expires")
		}
		if !answer.Found {
			fmt.Println("the session is gone")
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func databases(ctx context.Context, admin pb.AdminClient, store pb.KeyValueClient) error {
	orders := &pb.DatabaseDescription{
		Name: "orders", Durability: pb.DurabilityMode_DURABILITY_MODE_VOLATILE, QuotaBytes: 1 << 20,
	}
	if _, err := admin.CreateDatabase(ctx, &pb.CreateDatabaseRequest{Database: orders}); err != nil {
		return err
	}
	request := &pb.PutRequest{Database: "orders", Key: []byte("1"), Value: []byte("...")}
	if _, err := store.Put(ctx, request); err != nil {
		return err
	}
	list, err := admin.ListDatabases(ctx, &pb.ListDatabasesRequest{})
	if err != nil {
		return err
	}
	for _, found := range list.Databases {
		if found.Database.Name == "orders" {
			fmt.Println("orders:", found.Entries, "entry")
		}
	}
	// The name twice, because there is something in it.
	_, err = admin.DropDatabase(ctx, &pb.DropDatabaseRequest{Name: "orders", ConfirmName: "orders"})
	return err
}

func deadlines(ctx context.Context, echo pb.EchoClient) error {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err := echo.Unary(ctx, &pb.EchoRequest{DelayMs: 10_000})
	fmt.Println("no answer in 100 ms:", status.Code(err))
	return nil
}

// What may be sent again: the server did nothing, and says when to try.
func putWithRetries(ctx context.Context, store pb.KeyValueClient, request *pb.PutRequest) (*pb.PutResponse, error) {
	const attempts = 5
	for attempt := 1; ; attempt++ {
		var trailer metadata.MD
		answer, err := store.Put(ctx, request, grpc.Trailer(&trailer))
		pushback := trailer.Get("grpc-retry-pushback-ms")
		if status.Code(err) != codes.Unavailable || len(pushback) == 0 || attempt == attempts {
			return answer, err
		}
		pause, parseErr := strconv.Atoi(pushback[0])
		if parseErr != nil {
			return nil, err
		}
		// A little longer each time, and never all callers at once.
		factor := 1 + rand.Float64()*float64(int(1)<<attempt)
		select {
		case <-time.After(time.Duration(float64(pause) * factor * float64(time.Millisecond))):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// Whether the server may have done what was asked for, as the table in kv.proto says.
func outcome(err error) string {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.ResourceExhausted, codes.FailedPrecondition,
		codes.Unimplemented, codes.DataLoss:
		return "nothing was done"
	default:
		return "perhaps it was done"
	}
}

func failures(ctx context.Context, store pb.KeyValueClient) error {
	careful := &pb.PutRequest{Key: []byte("careful"), Value: []byte("...")}
	if _, err := putWithRetries(ctx, store, careful); err != nil {
		return err
	}
	wrong := []*pb.PutRequest{
		{Database: "nowhere", Key: []byte("a"), Value: []byte("1")},
		{Key: []byte(strings.Repeat("a", 70_000)), Value: []byte("1")},
		{Key: []byte("a"), Expiry: &pb.PutRequest_KeepTimeToLive{KeepTimeToLive: false}},
	}
	for _, request := range wrong {
		_, err := store.Put(ctx, request)
		fmt.Printf("%s: %s\n", status.Code(err), outcome(err))
	}
	return nil
}

func health(ctx context.Context, client healthpb.HealthClient) error {
	answer, err := client.Check(ctx, &healthpb.HealthCheckRequest{Service: "pelton.v1.KeyValue"})
	if err != nil {
		return err
	}
	fmt.Println("health:", answer.Status)
	return nil
}

func main() {
	address := os.Getenv("PELTON_ADDRESS")
	if address == "" {
		address = "127.0.0.1:1978"
	}
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	store := pb.NewKeyValueClient(connection)

	withStore := func(step func(context.Context, pb.KeyValueClient) error) func(context.Context) error {
		return func(ctx context.Context) error { return step(ctx, store) }
	}
	steps := []func(context.Context) error{
		withStore(values), withStore(conditions), withStore(numbers), withStore(batch), withStore(transact),
		withStore(ranges), withStore(pipe), withStore(timeToLive),
		func(ctx context.Context) error { return databases(ctx, pb.NewAdminClient(connection), store) },
		func(ctx context.Context) error { return deadlines(ctx, pb.NewEchoClient(connection)) },
		withStore(failures),
		func(ctx context.Context) error { return health(ctx, healthpb.NewHealthClient(connection)) },
	}
	for _, step := range steps {
		// No call waits longer than this, whatever happens.
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		err := step(ctx)
		cancel()
		if err != nil {
			log.Fatal(err)
		}
	}
}
