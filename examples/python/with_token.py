"""Calls with a token that lets its holder read, from the file that PELTON_TOKEN_FILE names."""

import os

import grpc
from pelton.v1 import kv_pb2, kv_pb2_grpc

ADDRESS = os.environ.get("PELTON_ADDRESS", "127.0.0.1:1978")


def main():
    with open(os.environ["PELTON_TOKEN_FILE"]) as file:
        metadata = [("authorization", "Bearer " + file.read().strip())]
    with grpc.insecure_channel(ADDRESS) as channel:
        store = kv_pb2_grpc.KeyValueStub(channel)
        store.Get(kv_pb2.GetRequest(key=b"greeting"), metadata=metadata, timeout=10)
        print("it may read")
        try:
            put = kv_pb2.PutRequest(key=b"greeting", value=b"bye")
            store.Put(put, metadata=metadata, timeout=10)
        except grpc.RpcError as error:
            print("it may not write:", error.code().name)


if __name__ == "__main__":
    main()
