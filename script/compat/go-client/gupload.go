package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"os"
	"regexp"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	blob "pelton.example/compat/go-client/blob"
	"pelton.example/compat/go-client/gupload"
)

const largestChunk = 4 << 20

var generatedName = regexp.MustCompile(`gupload/\d{8}T\d{6}\.\d{3}Z-\d{8}-[0-9a-f]{16}$`)

// Bytes that follow from their number and their count, which they begin with: whoever finds them can check them.
func content(size int) []byte {
	made := make([]byte, max(size, 16))
	binary.BigEndian.PutUint64(made, rand.Uint64())
	binary.BigEndian.PutUint64(made[8:], uint64(size))
	fill(made)
	return made[:size]
}

func fill(made []byte) {
	source := rand.New(rand.NewSource(int64(binary.BigEndian.Uint64(made))))
	source.Read(made[16:])
}

func checkContent(found []byte) error {
	if len(found) < 16 {
		return nil
	}
	made := make([]byte, len(found))
	copy(made, found[:16])
	fill(made)
	if binary.BigEndian.Uint64(found[8:]) != uint64(len(found)) || !bytes.Equal(made, found) {
		return fmt.Errorf("%d bytes are not what was uploaded", len(found))
	}
	return nil
}

// Sends a file as gupload's client does, and answers with the text of the server.
func upload(connection grpc.ClientConnInterface, data []byte, chunkSize int, options ...grpc.CallOption) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := gupload.NewGuploadServiceClient(connection).Upload(ctx, options...)
	if err != nil {
		return "", err
	}
	for begin := 0; begin < len(data); begin += chunkSize {
		chunk := &gupload.Chunk{Content: data[begin:min(begin+chunkSize, len(data))]}
		// After io.EOF the status says why.
		if err := stream.Send(chunk); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return "", err
		}
	}
	answer, err := stream.CloseAndRecv()
	if err != nil {
		return "", err
	}
	if answer.Code != gupload.UploadStatusCode_Ok {
		return "", fmt.Errorf("the code is %v: %s", answer.Code, answer.Message)
	}
	return answer.Message, nil
}

// Names of what is kept.
func names(connection grpc.ClientConnInterface) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := blob.NewBlobClient(connection).List(ctx, &blob.ListRequest{Prefix: "gupload/"})
	if err != nil {
		return nil, err
	}
	var found []string
	for {
		page, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		for _, one := range page.Blobs {
			found = append(found, one.Name)
		}
	}
}

func uploadAndRead(connection grpc.ClientConnInterface, size, chunkSize int, options ...grpc.CallOption) error {
	data := content(size)
	text, err := upload(connection, data, chunkSize, options...)
	if err != nil {
		return fmt.Errorf("%d bytes in chunks of %d: %w", size, chunkSize, err)
	}
	return expectKept(connection, generatedName.FindString(text), data)
}

func expectKept(connection grpc.ClientConnInterface, name string, data []byte) error {
	if name == "" {
		return fmt.Errorf("no name was told")
	}
	found, err := blobsOn(connection).read(&blob.DownloadRequest{Name: name})
	if err != nil {
		return err
	}
	if !bytes.Equal(found, data) {
		return fmt.Errorf("%s: %d bytes came back, not what was uploaded", name, len(found))
	}
	return nil
}

// Sizes and chunks of all kinds.
func uploads(connection grpc.ClientConnInterface, options ...grpc.CallOption) error {
	for _, one := range [][2]int{{0, 1}, {1, 1}, {20_000, 16}, {1_000_000, 4096}, {1_000_001, 65_536}, {3*largestChunk + 7, largestChunk}} {
		if err := uploadAndRead(connection, one[0], one[1], options...); err != nil {
			return err
		}
	}
	return nil
}

func guploadPlain(c caller) error { return uploads(c.connection) }

func guploadGzip(c caller) error { return uploads(c.connection, grpc.UseCompressor(gzip.Name)) }

// What the self-signed server is trusted by.
func roots() (*tls.Config, error) {
	pem, err := os.ReadFile(os.Getenv("PELTON_TLS_CA"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no certificate in PELTON_TLS_CA")
	}
	// As the original client: the name is fixed.
	return &tls.Config{RootCAs: pool, ServerName: "localhost"}, nil
}

func guploadTLS(c caller) error {
	config, err := roots()
	if err != nil {
		return err
	}
	connection, err := grpc.NewClient(os.Getenv("PELTON_TLS_ADDRESS"), grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := uploads(connection); err != nil {
		return err
	}
	return uploads(connection, grpc.UseCompressor(gzip.Name))
}

// POST and other methods on /upload, with a body of known and of unknown length.
func postAll(client *http.Client, url string, c caller) error {
	for _, method := range []string{http.MethodPost, http.MethodPut} {
		for _, size := range []int{0, 1, 65_536, 5_000_000} {
			data := content(size)
			for _, body := range []io.Reader{bytes.NewReader(data), io.MultiReader(bytes.NewReader(data))} {
				location, err := post(client, method, url, body)
				if err != nil {
					return fmt.Errorf("%s of %d bytes: %w", method, size, err)
				}
				if err := expectKept(c.connection, generatedName.FindString(location), data); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Answers with the location.
func post(client *http.Client, method, url string, body io.Reader) (string, error) {
	request, err := http.NewRequest(method, url, body)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.ProtoMajor != 2 || response.StatusCode != http.StatusOK || len(answer) != 0 {
		return "", fmt.Errorf("%s %d %q", response.Proto, response.StatusCode, answer)
	}
	return response.Header.Get("location"), nil
}

func guploadHTTP(c caller) error {
	return postAll(plainClient(), "http://"+c.address+"/upload", c)
}

func plainClient() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{Protocols: protocols}, Timeout: patience}
}

func guploadHTTPOverTLS(c caller) error {
	config, err := roots()
	if err != nil {
		return err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols, TLSClientConfig: config}, Timeout: patience}
	return postAll(client, "https://"+os.Getenv("PELTON_TLS_ADDRESS")+"/upload", c)
}

// Callers on one connection, and each on its own.
func guploadConcurrency(c caller) error {
	work := func(connection grpc.ClientConnInterface, number int) error {
		return uploadAndRead(connection, 100_000*number, 1000*number+1)
	}
	if err := each(16, func(number int) error { return work(c.connection, number) }); err != nil {
		return err
	}
	return each(16, func(number int) error {
		connection, err := c.dial()
		if err != nil {
			return err
		}
		defer connection.Close()
		return work(connection, number)
	})
}

func guploadRefusals(c caller) error {
	before, err := names(c.connection)
	if err != nil {
		return err
	}
	_, err = upload(c.connection, make([]byte, largestChunk+1), largestChunk+1)
	if got := status.Convert(err); got.Code() != codes.ResourceExhausted || !strings.Contains(got.Message(), "4194304") {
		return fmt.Errorf("a chunk that is too large: %v", err)
	}
	return expectNames(c, before)
}

// Whoever goes away in the midst of it leaves nothing.
func guploadCancelled(c caller) error {
	before, err := names(c.connection)
	if err != nil {
		return err
	}
	for range 20 {
		ctx, cancel := context.WithCancel(context.Background())
		stream, err := gupload.NewGuploadServiceClient(c.connection).Upload(ctx)
		if err != nil {
			cancel()
			return err
		}
		for range rand.Intn(10) {
			if err := stream.Send(&gupload.Chunk{Content: make([]byte, 50_000)}); err != nil {
				cancel()
				return err
			}
		}
		cancel()
		if _, err := stream.CloseAndRecv(); status.Code(err) != codes.Canceled {
			return fmt.Errorf("after cancel: %v", err)
		}
	}
	return expectNames(c, before)
}

func expectNames(c caller, expected []string) error {
	found, err := names(c.connection)
	if err == nil && strings.Join(found, " ") != strings.Join(expected, " ") {
		err = fmt.Errorf("%d uploads are kept instead of %d", len(found), len(expected))
	}
	return err
}

// After a restart everything that was answered is there, whole.
func guploadWritten(c caller) error {
	found, err := names(c.connection)
	if err != nil {
		return err
	}
	if len(found) < 50 {
		return fmt.Errorf("only %d uploads are there", len(found))
	}
	for _, name := range found {
		data, err := blobsOn(c.connection).read(&blob.DownloadRequest{Name: name})
		if err != nil {
			return err
		}
		if err := checkContent(data); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// A server with --discard-uploads.
func guploadDiscarded(c caller) error {
	before, err := names(c.connection)
	if err != nil {
		return err
	}
	for _, options := range [][]grpc.CallOption{nil, {grpc.UseCompressor(gzip.Name)}} {
		for _, size := range []int{0, 1, 20_000_000} {
			if text, err := upload(c.connection, content(size), largestChunk, options...); err != nil || generatedName.MatchString(text) {
				return fmt.Errorf("%d bytes: %q, %v", size, text, err)
			}
		}
	}
	location, err := post(plainClient(), http.MethodPost, "http://"+c.address+"/upload", bytes.NewReader(content(20_000_000)))
	if err != nil || location != "" {
		return fmt.Errorf("POST: location %q, %v", location, err)
	}
	return expectNames(c, before)
}
