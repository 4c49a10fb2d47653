// A client of the drop-in services and of pelton.v1.Blob in another language than the other end-to-end tests: grpc-go, with code generated
// from proto/. Usage: go-client ADDRESS CASE ...; a line for each case, and exit code 1 if one fails.
package main

import (
	"fmt"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Each case gets a connection of its own, and may open more.
type caller struct {
	address    string
	connection *grpc.ClientConn
}

func (c caller) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient(c.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

var cases = map[string]func(caller) error{
	"blob_methods":        blobMethods,
	"blob_large":          blobLarge,
	"blob_resume":         blobResume,
	"blob_refusals":       blobRefusals,
	"blob_concurrency":    blobConcurrency,
	"blob_tls":            blobTLS,
	"blob_write":          blobWrite,
	"blob_written":        blobWritten,
	"kvstore_methods":     kvstoreMethods,
	"kvstore_large":       kvstoreLarge,
	"kvstore_refusals":    kvstoreRefusals,
	"kvstore_race":        kvstoreRace,
	"kvstore_concurrency": kvstoreConcurrency,
	"kvstore_misses":      kvstoreMisses,
	"kvstore_write":       kvstoreWrite,
	"kvstore_written":     kvstoreWritten,
	"gupload_plain":       guploadPlain,
	"gupload_gzip":        guploadGzip,
	"gupload_tls":         guploadTLS,
	"gupload_http":        guploadHTTP,
	"gupload_http_tls":    guploadHTTPOverTLS,
	"gupload_concurrency": guploadConcurrency,
	"gupload_refusals":    guploadRefusals,
	"gupload_cancelled":   guploadCancelled,
	"gupload_written":     guploadWritten,
	"gupload_discarded":   guploadDiscarded,
	"ping_plain":          pingPlain,
	"ping_stream":         pingStream,
	"ping_workers":        pingWorkers,
}

func run(address, name string) error {
	work, known := cases[name]
	if !known {
		return fmt.Errorf("there is no such case")
	}
	c := caller{address: address}
	connection, err := c.dial()
	if err != nil {
		return err
	}
	defer connection.Close()
	c.connection = connection
	return work(c)
}

func main() {
	failed := false
	for _, name := range os.Args[2:] {
		if err := run(os.Args[1], name); err != nil {
			fmt.Printf("FAILED %s: %v\n", name, err)
			failed = true
		} else {
			fmt.Printf("passed %s\n", name)
		}
	}
	if failed {
		os.Exit(1)
	}
}
