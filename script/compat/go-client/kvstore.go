package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"pelton.example/compat/go-client/kvstore"
)

const patience = 30 * time.Second

type keys struct{ stub kvstore.KeyValueServiceClient }

func (k keys) call(method string, key, value []byte) (proto.Message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch method {
	case "Create":
		return k.stub.Create(ctx, &kvstore.CreateRequest{Key: key, Value: value})
	case "Retrieve":
		return k.stub.Retrieve(ctx, &kvstore.RetrieveRequest{Key: key})
	case "Update":
		return k.stub.Update(ctx, &kvstore.UpdateRequest{Key: key, Value: value})
	default:
		return k.stub.Delete(ctx, &kvstore.DeleteRequest{Key: key})
	}
}

// Expects a status without a text, and with OK that value, or an empty answer.
func (k keys) expect(method string, key, value []byte, code codes.Code, answer []byte) error {
	response, err := k.call(method, key, value)
	if got := status.Convert(err); got.Code() != code || got.Message() != "" {
		return fmt.Errorf("%s %q: %v %q instead of %v without a text", method, short(key), got.Code(), got.Message(), code)
	}
	if code != codes.OK {
		return nil
	}
	if found, is := response.(*kvstore.RetrieveResponse); is {
		if !bytes.Equal(found.Value, answer) {
			return fmt.Errorf("Retrieve %q: another value than was written", short(key))
		}
	} else if proto.Size(response) != 0 {
		return fmt.Errorf("%s: the answer is not empty", method)
	}
	return nil
}

func short(key []byte) []byte { return key[:min(len(key), 40)] }

type step struct {
	method string
	value  string
	code   codes.Code
	answer string
}

func (k keys) steps(key []byte, steps []step) error {
	for _, s := range steps {
		if err := k.expect(s.method, key, []byte(s.value), s.code, []byte(s.answer)); err != nil {
			return err
		}
	}
	return nil
}

func on(connection grpc.ClientConnInterface) keys {
	return keys{kvstore.NewKeyValueServiceClient(connection)}
}

// A key that no other case, and no run before, has.
func ownKey(name string) []byte { return fmt.Appendf(nil, "%s-%x", name, rand.Uint64()) }

func kvstoreMethods(c caller) error {
	return on(c.connection).steps(ownKey("methods"), []step{
		{"Retrieve", "", codes.NotFound, ""},
		{"Update", "0", codes.NotFound, ""},
		{"Delete", "", codes.OK, ""},
		{"Create", "one", codes.OK, ""},
		{"Create", "two", codes.AlreadyExists, ""},
		{"Retrieve", "", codes.OK, "one"},
		{"Update", "three", codes.OK, ""},
		{"Retrieve", "", codes.OK, "three"},
		{"Delete", "", codes.OK, ""},
		{"Delete", "", codes.OK, ""},
		{"Retrieve", "", codes.NotFound, ""},
	})
}

func kvstoreLarge(c caller) error {
	for _, size := range []int{1, 16_384, 65_536, 4_000_000} {
		value := bytes.Repeat([]byte("pelton "), size/7+1)[:size]
		err := on(c.connection).steps(ownKey("large"), []step{
			{"Create", string(value), codes.OK, ""},
			{"Retrieve", "", codes.OK, string(value)},
			{"Delete", "", codes.OK, ""},
		})
		if err != nil {
			return fmt.Errorf("%d bytes: %w", size, err)
		}
	}
	return nil
}

func kvstoreRefusals(c caller) error {
	k := on(c.connection)
	for _, refused := range []struct {
		method     string
		key, value int
	}{{"Create", 1, 4_000_001}, {"Update", 1, 4_000_001}, {"Retrieve", 65_536, 0}, {"Delete", 65_536, 0}} {
		_, err := k.call(refused.method, make([]byte, refused.key), make([]byte, refused.value))
		if got := status.Convert(err); got.Code() != codes.ResourceExhausted || got.Message() == "" {
			return fmt.Errorf("%s: %v", refused.method, err)
		}
	}
	return nil
}

// Of many Creates of one key one succeeds.
func kvstoreRace(c caller) error {
	const callers = 50
	key, created, err := ownKey("race"), 0, error(nil)
	var all sync.WaitGroup
	var guard sync.Mutex
	for range callers {
		all.Go(func() {
			_, failed := on(c.connection).call("Create", key, []byte("v"))
			guard.Lock()
			defer guard.Unlock()
			switch code := status.Code(failed); code {
			case codes.OK:
				created++
			case codes.AlreadyExists:
			default:
				err = failed
			}
		})
	}
	all.Wait()
	if err == nil && created != 1 {
		err = fmt.Errorf("%d Creates of %d succeeded", created, callers)
	}
	return err
}

func kvstoreConcurrency(c caller) error {
	return each(16, func(number int) error {
		connection, err := c.dial()
		if err != nil {
			return err
		}
		defer connection.Close()
		k, key := on(connection), ownKey("concurrency")
		for round := range 50 {
			one, two := fmt.Sprint(number, round), fmt.Sprint(round, number)
			err := k.steps(key, []step{
				{"Create", one, codes.OK, ""},
				{"Retrieve", "", codes.OK, one},
				{"Update", two, codes.OK, ""},
				{"Retrieve", "", codes.OK, two},
				{"Delete", "", codes.OK, ""},
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Does work on so many goroutines, and answers with one of their errors.
func each(count int, work func(int) error) error {
	failures := make(chan error, count)
	for number := range count {
		go func() { failures <- work(number) }()
	}
	var failure error
	for range count {
		if err := <-failures; err != nil {
			failure = err
		}
	}
	return failure
}

// Keys for kvstoreWritten, after the server was ended and started anew.
func kvstoreWrite(c caller) error {
	for number := range 100 {
		steps := []step{{"Create", "first", codes.OK, ""}}
		if number%3 == 1 {
			steps = append(steps, step{"Update", "second", codes.OK, ""})
		}
		if number%3 == 2 {
			steps = append(steps, step{"Delete", "", codes.OK, ""})
		}
		if err := on(c.connection).steps(fmt.Appendf(nil, "written-%d", number), steps); err != nil {
			return err
		}
	}
	return nil
}

func kvstoreWritten(c caller) error {
	for number := range 100 {
		found := []step{
			{"Retrieve", "", codes.OK, "first"},
			{"Retrieve", "", codes.OK, "second"},
			{"Retrieve", "", codes.NotFound, ""},
		}[number%3]
		if err := on(c.connection).steps(fmt.Appendf(nil, "written-%d", number), []step{found}); err != nil {
			return err
		}
	}
	return nil
}

// A status that is not OK is an answer like any other: as many of them as may be do not cost the connection.
func kvstoreMisses(c caller) error {
	k, key := on(c.connection), ownKey("misses")
	return each(100, func(int) error {
		for range 300 {
			if err := k.expect("Retrieve", key, nil, codes.NotFound, nil); err != nil {
				return err
			}
		}
		return nil
	})
}
