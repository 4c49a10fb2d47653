"""Asks a server with TLS whether it serves. docs/tls.md explains it.

The environment says where the files are: CA, and for a server that asks for certificates
CERTIFICATE and KEY.
"""

import os

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

ADDRESS = os.environ.get("PELTON_ADDRESS", "127.0.0.1:1978")


def read(variable):
    path = os.environ.get(variable)
    return open(path, "rb").read() if path else None


credentials = grpc.ssl_channel_credentials(
    root_certificates=read("CA"),
    private_key=read("KEY"),
    certificate_chain=read("CERTIFICATE"),
)
with grpc.secure_channel(ADDRESS, credentials) as channel:
    answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
    print("health:", health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
