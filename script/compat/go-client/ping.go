package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"pelton.example/compat/go-client/ydbping"
)

// A single call is answered with an empty message, within the second that the benchmark gives it.
func pingPlain(c caller) error {
	stub := ydbping.NewDebugServiceClient(c.connection)
	for range 100 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		answer, err := stub.PingPlainGrpc(ctx, &ydbping.PlainGrpcRequest{})
		cancel()
		if err != nil {
			return err
		}
		if answer.CallBackTs != 0 {
			return fmt.Errorf("CallBackTs is %d", answer.CallBackTs)
		}
	}
	return nil
}

// Writes and reads in turn on one stream; the answers tell the time.
func pingPong(c caller, count int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := ydbping.NewDebugServiceClient(c.connection).PingStream(ctx)
	if err != nil {
		return err
	}
	before := uint64(time.Now().Add(-time.Second).UnixMicro())
	for range count {
		if err := stream.Send(&ydbping.PlainGrpcRequest{}); err != nil {
			return err
		}
		answer, err := stream.Recv()
		if err != nil {
			return err
		}
		if answer.CallBackTs < before {
			return fmt.Errorf("CallBackTs is %d, after %d", answer.CallBackTs, before)
		}
		before = answer.CallBackTs
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("after the last answer: %v", err)
	}
	return nil
}

func pingStream(c caller) error { return pingPong(c, 200) }

// Workers on one connection, then each on its own.
func pingWorkers(c caller) error {
	if err := each(32, func(int) error { return pingPong(c, 50) }); err != nil {
		return err
	}
	return each(32, func(int) error {
		connection, err := c.dial()
		if err != nil {
			return err
		}
		defer connection.Close()
		return pingPong(caller{c.address, connection}, 50)
	})
}
