package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	blob "pelton.example/compat/go-client/blob"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func crc32c(data []byte) uint32 { return crc32.Checksum(data, castagnoli) }

// Bytes that look random, the same for the same seed.
func pattern(seed uint32, count int) []byte {
	data := make([]byte, count)
	for i := range data {
		seed = seed*1664525 + 1013904223
		data[i] = byte(seed >> 24)
	}
	return data
}

type blobs struct{ stub blob.BlobClient }

func blobsOn(connection grpc.ClientConnInterface) blobs {
	return blobs{blob.NewBlobClient(connection)}
}

func patient() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

// What is sent of an upload.
type blobUpload struct {
	begin  *blob.UploadBegin
	data   []byte
	chunk  int
	damage bool // the checksum of the last chunk is not its own
	noEnd  bool
}

func (b blobs) upload(u blobUpload) (*blob.UploadResponse, error) {
	ctx, cancel := patient()
	defer cancel()
	stream, err := b.stub.Upload(ctx)
	if err != nil {
		return nil, err
	}
	requests := []*blob.UploadRequest{{Part: &blob.UploadRequest_Begin{Begin: u.begin}}}
	for at := int(u.begin.Offset); at < len(u.data); at += u.chunk {
		part := u.data[at:min(at+u.chunk, len(u.data))]
		sum := crc32c(part)
		if u.damage && at+u.chunk >= len(u.data) {
			sum++
		}
		chunk := &blob.UploadChunk{Data: part, Crc32C: &sum}
		requests = append(requests, &blob.UploadRequest{Part: &blob.UploadRequest_Chunk{Chunk: chunk}})
	}
	if !u.noEnd {
		end := &blob.UploadEnd{Crc32C: proto.Uint32(crc32c(u.data))}
		requests = append(requests, &blob.UploadRequest{Part: &blob.UploadRequest_End{End: end}})
	}
	for _, request := range requests {
		// The status comes with the answer.
		if err := stream.Send(request); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	return stream.CloseAndRecv()
}

func (b blobs) store(name string, data []byte, chunk int) error {
	answer, err := b.upload(blobUpload{begin: &blob.UploadBegin{Name: name}, data: data, chunk: chunk})
	if err != nil {
		return err
	}
	if got := answer.GetBlob(); !answer.Applied || got.SizeBytes != uint64(len(data)) || got.Crc32C != crc32c(data) {
		return fmt.Errorf("%s: stored as %v", name, got)
	}
	return nil
}

func (b blobs) read(request *blob.DownloadRequest) ([]byte, error) {
	ctx, cancel := patient()
	defer cancel()
	stream, err := b.stub.Download(ctx, request)
	if err != nil {
		return nil, err
	}
	var data []byte
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
		if response.GetCrc32C() != crc32c(response.Data) {
			return nil, fmt.Errorf("%s: a chunk does not fit its checksum", request.Name)
		}
		data = append(data, response.Data...)
	}
}

func (b blobs) expect(name string, data []byte) error {
	found, err := b.read(&blob.DownloadRequest{Name: name})
	if err == nil && !bytes.Equal(found, data) {
		err = fmt.Errorf("%s: another content than was stored", name)
	}
	return err
}

func expectCode(what string, err error, code codes.Code) error {
	if got := status.Convert(err); got.Code() != code || got.Message() == "" {
		return fmt.Errorf("%s: %v %q instead of %v with a text", what, got.Code(), got.Message(), code)
	}
	return nil
}

func blobMethods(c caller) error {
	b, name := blobsOn(c.connection), string(ownKey("blob/methods"))
	data := pattern(1, 3_000_000)
	ctx, cancel := patient()
	defer cancel()
	if err := b.store(name, data, 100_000); err != nil {
		return err
	}
	if err := b.expect(name, data); err != nil {
		return err
	}
	part, err := b.read(&blob.DownloadRequest{Name: name, Offset: 65_530, LengthBytes: 100})
	if err != nil || !bytes.Equal(part, data[65_530:65_630]) {
		return fmt.Errorf("a range: %d bytes, %v", len(part), err)
	}
	found, err := b.stub.Stat(ctx, &blob.StatRequest{Name: name})
	if err != nil || !found.Found || found.Blob.SizeBytes != 3_000_000 || found.Blob.Crc32C != crc32c(data) {
		return fmt.Errorf("Stat: %v %v", found, err)
	}
	pages, err := b.stub.List(ctx, &blob.ListRequest{Prefix: name})
	if err != nil {
		return err
	}
	page, err := pages.Recv()
	if err != nil || len(page.Blobs) != 1 || page.Blobs[0].Name != name || !page.Last {
		return fmt.Errorf("List: %v %v", page, err)
	}
	for _, there := range []bool{true, false} {
		gone, err := b.stub.Delete(ctx, &blob.DeleteBlobRequest{Name: name})
		if err != nil || gone.Deleted != there {
			return fmt.Errorf("Delete: %v %v", gone, err)
		}
	}
	_, err = b.read(&blob.DownloadRequest{Name: name})
	return expectCode("what is deleted", err, codes.NotFound)
}

func blobLarge(c caller) error {
	b := blobsOn(c.connection)
	for _, size := range []int{0, 1, 65_536, 4 << 20, 9<<20 + 5} {
		name, data := string(ownKey("blob/large")), pattern(uint32(size), size)
		if err := b.store(name, data, 4<<20); err != nil {
			return fmt.Errorf("%d bytes: %w", size, err)
		}
		if err := b.expect(name, data); err != nil {
			return fmt.Errorf("%d bytes: %w", size, err)
		}
	}
	return nil
}

// Damage is found at once, what came before it stays, and the upload goes on from there.
func blobResume(c caller) error {
	b, name, id := blobsOn(c.connection), string(ownKey("blob/resume")), []byte("of go")
	data := pattern(3, 1_000_000)
	ctx, cancel := patient()
	defer cancel()
	begin := func(offset int) *blob.UploadBegin {
		return &blob.UploadBegin{Name: name, UploadId: id, Offset: uint64(offset), SizeBytes: proto.Uint64(1_000_000)}
	}
	stored := func(expected uint64) error {
		found, err := b.stub.Stat(ctx, &blob.StatRequest{Name: name, UploadId: id})
		if err != nil || found.StoredBytes != expected {
			return fmt.Errorf("stored are %v, %v, and not %d", found, err, expected)
		}
		whole, err := b.stub.Stat(ctx, &blob.StatRequest{Name: name})
		if err != nil || whole.Found {
			return fmt.Errorf("an unfinished upload is visible: %v %v", whole, err)
		}
		return nil
	}
	_, err := b.upload(blobUpload{begin: begin(0), data: data[:500_000], chunk: 50_000, damage: true})
	if err := expectCode("a damaged chunk", err, codes.DataLoss); err != nil {
		return err
	}
	if err := stored(450_000); err != nil {
		return err
	}
	_, err = b.upload(blobUpload{begin: begin(100), data: data, chunk: 50_000})
	if err := expectCode("a wrong offset", err, codes.OutOfRange); err != nil {
		return err
	}
	_, err = b.upload(blobUpload{begin: begin(450_000), data: data[:700_000], chunk: 50_000, noEnd: true})
	if err := expectCode("no end", err, codes.InvalidArgument); err != nil {
		return err
	}
	if err := stored(700_000); err != nil {
		return err
	}
	if _, err = b.upload(blobUpload{begin: begin(700_000), data: data, chunk: 50_000}); err != nil {
		return err
	}
	return b.expect(name, data)
}

func blobRefusals(c caller) error {
	b, data := blobsOn(c.connection), pattern(4, 1000)
	for _, name := range []string{"", "a/../b", "a\x00b"} {
		_, err := b.upload(blobUpload{begin: &blob.UploadBegin{Name: name}, data: data, chunk: 100})
		if err := expectCode("a bad name", err, codes.InvalidArgument); err != nil {
			return err
		}
	}
	announced := &blob.UploadBegin{Name: "large", SizeBytes: proto.Uint64(1 << 60)}
	_, err := b.upload(blobUpload{begin: announced, data: data, chunk: 100})
	if err := expectCode("more than any disk has", err, codes.ResourceExhausted); err != nil {
		return err
	}
	_, err = b.upload(blobUpload{begin: &blob.UploadBegin{Name: "a", Database: "nowhere"}, data: data, chunk: 100})
	return expectCode("an unknown database", err, codes.NotFound)
}

func blobConcurrency(c caller) error {
	b := blobsOn(c.connection)
	failed := make([]error, 16)
	var group sync.WaitGroup
	for i := range failed {
		group.Go(func() {
			name, data := string(ownKey("blob/many")), pattern(uint32(i+100), 700_000+i)
			failed[i] = errors.Join(b.store(name, data, 65_536), b.expect(name, data))
		})
	}
	group.Wait()
	return errors.Join(failed...)
}

// Everything once more over TLS.
func blobTLS(c caller) error {
	config, err := roots()
	if err != nil {
		return err
	}
	connection, err := grpc.NewClient(os.Getenv("PELTON_TLS_ADDRESS"), grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		return err
	}
	defer connection.Close()
	secure := caller{connection: connection}
	return errors.Join(blobMethods(secure), blobLarge(secure), blobResume(secure), blobRefusals(secure), blobConcurrency(secure))
}

// Before a kill, and behind it.
func blobWrite(c caller) error {
	return blobsOn(c.connection).store("blob/of an earlier life", pattern(9, 5_000_000), 200_000)
}

func blobWritten(c caller) error {
	return blobsOn(c.connection).expect("blob/of an earlier life", pattern(9, 5_000_000))
}
