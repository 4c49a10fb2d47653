// Asks a server with TLS whether it serves. See docs/tls.md.
//
// The environment says where the files are: CA, and for a server that asks for certificates CERTIFICATE and KEY.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	health "google.golang.org/grpc/health/grpc_health_v1"
)

// settings reads the files that the environment names.
func settings() (*tls.Config, error) {
	authority, err := os.ReadFile(os.Getenv("CA"))
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("there is no certificate in %s", os.Getenv("CA"))
	}
	if file := os.Getenv("CERTIFICATE"); file != "" {
		own, err := tls.LoadX509KeyPair(file, os.Getenv("KEY"))
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

func main() {
	config, err := settings()
	if err != nil {
		log.Fatal(err)
	}
	address := os.Getenv("PELTON_ADDRESS")
	if address == "" {
		address = "127.0.0.1:1978"
	}
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	deadline, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	answer, err := health.NewHealthClient(connection).Check(deadline, &health.HealthCheckRequest{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("health:", answer.Status)
}
