package tour;

import com.google.protobuf.ByteString;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.health.v1.HealthCheckRequest;
import io.grpc.health.v1.HealthGrpc;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import pelton.v1.AdminGrpc;
import pelton.v1.BatchMode;
import pelton.v1.BatchRequest;
import pelton.v1.Comparison;
import pelton.v1.CountRequest;
import pelton.v1.CreateDatabaseRequest;
import pelton.v1.DatabaseDescription;
import pelton.v1.Direction;
import pelton.v1.DropDatabaseRequest;
import pelton.v1.DurabilityMode;
import pelton.v1.EchoGrpc;
import pelton.v1.EchoRequest;
import pelton.v1.GetRequest;
import pelton.v1.IncrementRequest;
import pelton.v1.KeyRange;
import pelton.v1.KeyValueGrpc;
import pelton.v1.ListDatabasesRequest;
import pelton.v1.Operation;
import pelton.v1.PipeAnswers;
import pelton.v1.PipeRequest;
import pelton.v1.PipeResponse;
import pelton.v1.PutRequest;
import pelton.v1.PutResponse;
import pelton.v1.ScanRequest;
import pelton.v1.TransactRequest;

/** A tour of Pelton's API from Java. docs/java.md explains it, and says how to run it. */
public final class Tour {
    private final ManagedChannel channel;

    private Tour(ManagedChannel channel) {
        this.channel = channel;
    }

    /** A deadline begins when it is set: so each call gets a new one. */
    private KeyValueGrpc.KeyValueBlockingStub store() {
        return KeyValueGrpc.newBlockingStub(channel).withDeadlineAfter(10, TimeUnit.SECONDS);
    }

    private static ByteString bytes(String text) {
        return ByteString.copyFromUtf8(text);
    }

    private void values() {
        store().put(PutRequest.newBuilder().setKey(bytes("greeting")).setValue(bytes("hello")).build());
        var answer = store().get(GetRequest.newBuilder().setKey(bytes("greeting")).build());
        System.out.println("greeting is " + answer.getValue().toStringUtf8());

        answer = store().get(GetRequest.newBuilder().setKey(bytes("nobody")).build());
        if (!answer.getFound()) {
            System.out.println("nobody is not there");
        }
    }

    private void conditions() {
        var leader = PutRequest.newBuilder().setKey(bytes("leader"));

        // Only if there is no such key.
        var claim = store().put(leader.setValue(bytes("alice")).setIfExists(false).build());
        System.out.println(claim.getApplied() ? "alice leads" : "alice is too late");

        // Only if nobody has written since.
        store().put(leader.setValue(bytes("bob")).setIfVersion(claim.getVersion()).build());
        var answer = store().put(leader.setValue(bytes("eve")).setIfVersion(claim.getVersion()).build());
        System.out.println(answer.getApplied() ? "eve leads" : "eve is too late");
    }

    private void numbers() {
        var visit = IncrementRequest.newBuilder().setKey(bytes("visits")).setDelta(1).build();
        store().increment(visit);
        store().increment(visit);
        System.out.println("visits: " + store().increment(visit).getValue());

        var answer = store().increment(IncrementRequest.newBuilder().setKey(bytes("greeting")).setDelta(1).build());
        if (!answer.getApplied()) {
            System.out.println("greeting: " + answer.getRefusal());
        }
    }

    private static Operation put(String key, String value) {
        var put = Operation.Put.newBuilder().setKey(bytes(key)).setValue(bytes(value));
        return Operation.newBuilder().setPut(put).build();
    }

    private void batch() {
        var cities = List.of(put("city/oslo", "709000"), put("city/paris", "2100000"), put("city/rome", "2800000"));
        var answer = store().batch(BatchRequest.newBuilder().addAllOperations(cities).build());
        System.out.println(answer.getResultsCount() + " cities stored");

        // All or nothing: the second operation fails, so the first one is not done either.
        var rome = Operation.Put.newBuilder().setKey(bytes("city/rome")).setValue(bytes("0")).setIfExists(false);
        answer = store().batch(BatchRequest.newBuilder()
                .addOperations(put("city/bonn", "336000"))
                .addOperations(Operation.newBuilder().setPut(rome))
                .build());
        if (!answer.getApplied()) {
            System.out.println("nothing was done, because of operation " + answer.getFailedOperation());
        }
    }

    private void transact() {
        var nextTerm = Operation.Increment.newBuilder().setKey(bytes("term")).setDelta(1);
        var readLeader = Operation.Get.newBuilder().setKey(bytes("leader"));
        var request = TransactRequest.newBuilder()
                .addComparisons(Comparison.newBuilder().setKey(bytes("leader")).setValue(bytes("bob")))
                .addComparisons(Comparison.newBuilder().setKey(bytes("election")).setExists(false))
                .addWhenMet(put("leader", "carol"))
                .addWhenMet(Operation.newBuilder().setIncrement(nextTerm))
                .addWhenUnmet(Operation.newBuilder().setGet(readLeader))
                .build();
        for (int round = 0; round < 2; round++) {
            var answer = store().transact(request);
            var results = answer.getBatch().getResultsList();
            if (answer.getMet()) {
                System.out.println("carol leads in term " + results.get(1).getIncrement().getValue());
            } else {
                System.out.printf("comparison %d was not met: %s leads%n",
                        answer.getUnmetComparison(), results.get(0).getGet().getValue().toStringUtf8());
            }
        }
    }

    private void ranges() {
        var cities = ScanRequest.newBuilder().setPrefix(bytes("city/")).build();
        store().scan(cities).forEachRemaining(page -> {
            for (var entry : page.getEntriesList()) {
                System.out.println(entry.getKey().toStringUtf8() + " " + entry.getValue().toStringUtf8());
            }
        });

        // The last key below `city/paris`, without its value.
        var below = ScanRequest.newBuilder()
                .setRange(KeyRange.newBuilder().setStart(bytes("city/")).setEnd(bytes("city/paris")))
                .setDirection(Direction.DIRECTION_BACKWARD)
                .setLimit(1)
                .setKeysOnly(true)
                .build();
        store().scan(below).forEachRemaining(page -> {
            for (var entry : page.getEntriesList()) {
                System.out.println("before paris: " + entry.getKey().toStringUtf8());
            }
        });

        var count = store().count(CountRequest.newBuilder().setPrefix(bytes("city/")).build());
        System.out.println(count.getCount() + " cities");
    }

    /** Sends batches while the transport takes them, and reads the answers meanwhile. */
    private static final class Writer implements ClientResponseObserver<PipeRequest, PipeResponse> {
        private final Iterator<PipeRequest> batches;
        private final CompletableFuture<Long> finished = new CompletableFuture<>();
        private long done;

        Writer(Iterator<PipeRequest> batches) {
            this.batches = batches;
        }

        @Override
        public void beforeStart(ClientCallStreamObserver<PipeRequest> requests) {
            requests.setOnReadyHandler(() -> {
                while (requests.isReady() && batches.hasNext()) {
                    requests.onNext(batches.next());
                    if (!batches.hasNext()) {
                        requests.onCompleted();
                    }
                }
            });
        }

        @Override
        public void onNext(PipeResponse answer) {
            done = answer.getDone();
            if (answer.getBatchNumber() != 0) {
                System.out.println("batch " + answer.getBatchNumber() + " failed: " + answer);
            }
        }

        @Override
        public void onError(Throwable error) {
            finished.completeExceptionally(error);
        }

        @Override
        public void onCompleted() {
            finished.complete(done);
        }
    }

    private static PipeRequest rows(int start, int end) {
        var request = PipeRequest.newBuilder()
                .setMode(BatchMode.BATCH_MODE_INDEPENDENT)
                .setAnswers(PipeAnswers.PIPE_ANSWERS_FAILURES_ONLY);
        for (int row = start; row < end; row++) {
            request.addOperations(put(String.format("row/%05d", row), "..."));
        }
        return request.build();
    }

    private void pipe() throws Exception {
        var batches = IntStream.range(0, 10).mapToObj(i -> rows(i * 1000, (i + 1) * 1000));
        var writer = new Writer(batches.iterator());
        KeyValueGrpc.newStub(channel).withDeadlineAfter(60, TimeUnit.SECONDS).pipe(writer);
        System.out.println(writer.finished.get() + " batches are done");
    }

    private void timeToLive() throws InterruptedException {
        store().put(PutRequest.newBuilder()
                .setKey(bytes("session")).setValue(bytes("...")).setTimeToLiveMs(200).build());
        var read = GetRequest.newBuilder().setKey(bytes("session")).build();
        System.out.println(store().get(read).getExpiresAtMs() != 0 ? "the session expires" : "the session stays");
        while (store().get(read).getFound()) {
            Thread.sleep(50);
        }
        System.out.println("the session is gone");
    }

    private void databases() {
        var admin = AdminGrpc.newBlockingStub(channel).withDeadlineAfter(10, TimeUnit.SECONDS);
        var orders = DatabaseDescription.newBuilder()
                .setName("orders").setDurability(DurabilityMode.DURABILITY_MODE_VOLATILE).setQuotaBytes(1 << 20);
        admin.createDatabase(CreateDatabaseRequest.newBuilder().setDatabase(orders).build());
        store().put(PutRequest.newBuilder()
                .setDatabase("orders").setKey(bytes("1")).setValue(bytes("...")).build());
        for (var found : admin.listDatabases(ListDatabasesRequest.getDefaultInstance()).getDatabasesList()) {
            if (found.getDatabase().getName().equals("orders")) {
                System.out.println("orders: " + found.getEntries() + " entry");
            }
        }
        // The name twice, because there is something in it.
        admin.dropDatabase(DropDatabaseRequest.newBuilder().setName("orders").setConfirmName("orders").build());
    }

    private void deadlines() {
        var echo = EchoGrpc.newBlockingStub(channel).withDeadlineAfter(100, TimeUnit.MILLISECONDS);
        try {
            echo.unary(EchoRequest.newBuilder().setDelayMs(10_000).build());
        } catch (StatusRuntimeException error) {
            System.out.println("no answer in 100 ms: " + error.getStatus().getCode());
        }
    }

    private static final Metadata.Key<String> PUSHBACK =
            Metadata.Key.of("grpc-retry-pushback-ms", Metadata.ASCII_STRING_MARSHALLER);

    /** What may be sent again: the server did nothing, and says when to try. */
    private PutResponse putWithRetries(PutRequest request) throws InterruptedException {
        for (int attempt = 1; ; attempt++) {
            try {
                return store().put(request);
            } catch (StatusRuntimeException error) {
                var trailers = error.getTrailers();
                var pushback = trailers == null ? null : trailers.get(PUSHBACK);
                if (error.getStatus().getCode() != Status.Code.UNAVAILABLE || pushback == null || attempt == 5) {
                    throw error;
                }
                // A little longer each time, and never all callers at once.
                var factor = ThreadLocalRandom.current().nextDouble(1, 1 << attempt);
                Thread.sleep((long) (Long.parseLong(pushback) * factor));
            }
        }
    }

    /** Whether the server may have done what was asked for, as the table in kv.proto says. */
    private static String outcome(Status status) {
        return switch (status.getCode()) {
            case INVALID_ARGUMENT, NOT_FOUND, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, UNIMPLEMENTED, DATA_LOSS ->
                    "nothing was done";
            default -> "perhaps it was done";
        };
    }

    private void errors() throws InterruptedException {
        putWithRetries(PutRequest.newBuilder().setKey(bytes("careful")).setValue(bytes("...")).build());
        var wrong = List.of(
                PutRequest.newBuilder().setDatabase("nowhere").setKey(bytes("a")).build(),
                PutRequest.newBuilder().setKey(bytes("a".repeat(70_000))).build(),
                PutRequest.newBuilder().setKey(bytes("a")).setKeepTimeToLive(false).build());
        for (var request : wrong) {
            try {
                store().put(request);
            } catch (StatusRuntimeException error) {
                System.out.println(error.getStatus().getCode() + ": " + outcome(error.getStatus()));
            }
        }
    }

    private void health() {
        var stub = HealthGrpc.newBlockingStub(channel).withDeadlineAfter(10, TimeUnit.SECONDS);
        var answer = stub.check(HealthCheckRequest.newBuilder().setService("pelton.v1.KeyValue").build());
        System.out.println("health: " + answer.getStatus());
    }

    private void run() throws Exception {
        values();
        conditions();
        numbers();
        batch();
        transact();
        ranges();
        pipe();
        timeToLive();
        databases();
        deadlines();
        errors();
        health();
    }

    public static void main(String[] arguments) throws Exception {
        var address = System.getenv().getOrDefault("PELTON_ADDRESS", "127.0.0.1:1978");
        var channel = Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build();
        try {
            new Tour(channel).run();
        } finally {
            channel.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
        }
    }
}
