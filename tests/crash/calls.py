"""A small gRPC client on one connection: whole answers, and uploads within the windows."""

from pelton.v1 import admin_pb2, blob_pb2, kv_pb2
from raw import (
    DATA,
    END_STREAM,
    FIRST_WINDOW,
    MAX_WINDOW,
    WINDOW_UPDATE,
    PacedConnection,
    frame,
    grpc_message,
    settings_payload,
)

FRAME_BYTES = 16_384
SECONDS = 60

ANSWERS = {
    "KeyValue/Get": kv_pb2.GetResponse,
    "KeyValue/Put": kv_pb2.PutResponse,
    "KeyValue/Delete": kv_pb2.DeleteResponse,
    "KeyValue/Append": kv_pb2.AppendResponse,
    "KeyValue/Increment": kv_pb2.IncrementResponse,
    "KeyValue/Batch": kv_pb2.BatchResponse,
    "KeyValue/Scan": kv_pb2.ScanPage,
    "Admin/CreateDatabase": admin_pb2.CreateDatabaseResponse,
    "Admin/DropDatabase": admin_pb2.DropDatabaseResponse,
    "Admin/ListDatabases": admin_pb2.ListDatabasesResponse,
    "Admin/ConvertDatabase": admin_pb2.ConvertProgress,
    "Admin/Backup": admin_pb2.BackupProgress,
    "Admin/Snapshot": admin_pb2.SnapshotResponse,
    "Blob/Upload": blob_pb2.UploadResponse,
    "Blob/Download": blob_pb2.DownloadResponse,
    "Blob/Stat": blob_pb2.StatResponse,
    "Blob/List": blob_pb2.ListResponse,
    "Blob/Delete": blob_pb2.DeleteBlobResponse,
}


class Refused(AssertionError):
    """A call that ended with another status than OK."""

    def __init__(self, method, answer):
        super().__init__(f"{method}: status {answer.grpc_status}, {answer.grpc_message}")
        self.status = answer.grpc_status


class Calls(PacedConnection):
    """Reads without bounds, since windows are wide open; sends as far as the server lets it."""

    def __init__(self, address):
        super().__init__(address, settings=settings_payload(initial_window_size=MAX_WINDOW))
        self.send(frame(WINDOW_UPDATE, 0, 0, (MAX_WINDOW - FIRST_WINDOW).to_bytes(4)))
        self.local_port = self.socket.getsockname()[1]

    def begin(self, method, request=None):
        """Sends a call, whole if there is a request; returns its stream."""
        stream, head = self.request(f"/pelton.v1.{method}")
        self.send(head)
        if request is not None:
            self.send_message(stream, request, END_STREAM)
        return stream

    def send_message(self, stream, message, flags=0):
        """Sends a message in frames that fit the windows, the last one with these flags."""
        rest = grpc_message(message.SerializeToString())
        while rest and not self.answers[stream].over:
            room = min(self.room(stream), FRAME_BYTES)
            if room <= 0:
                assert self.read(SECONDS), "the server opens no window"
                continue
            piece, rest = rest[:room], rest[room:]
            self.spend(stream, len(piece))
            self.send(frame(DATA, 0 if rest else flags, stream, piece))

    def half_close(self, stream):
        if not self.answers[stream].over:
            self.send_quietly(frame(DATA, END_STREAM, stream))

    def messages(self, method, stream):
        """Waits for the end of a call, and returns its messages."""
        answer = self.wait(stream, SECONDS)
        if answer.grpc_status != 0 or answer.resets:
            raise Refused(method, answer)
        # A view: to cut a large body again for each message would take seconds.
        found, body = [], memoryview(answer.body)
        while body:
            length = int.from_bytes(body[1:5])
            found.append(ANSWERS[method].FromString(body[5 : 5 + length]))
            body = body[5 + length :]
        del self.answers[stream]
        return found

    def call(self, method, request):
        return self.messages(method, self.begin(method, request))
