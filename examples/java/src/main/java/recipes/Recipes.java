package recipes;

import com.google.protobuf.ByteString;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.StreamObserver;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BiConsumer;
import pelton.v1.AdminGrpc;
import pelton.v1.EchoGrpc;
import pelton.v1.EchoRequest;
import pelton.v1.GetRequest;
import pelton.v1.GetResponse;
import pelton.v1.KeyValueGrpc;
import pelton.v1.PutRequest;
import pelton.v1.StatisticsRequest;

/**
 * A client that makes many calls at once: connections, calls in flight, deadlines, message size, windows. See
 * docs/recipes.md.
 *
 * <p>Without arguments: tries each recipe. With CONNECTIONS IN-FLIGHT CALLS: measures.
 */
public final class Recipes {
    /** Spreads calls over several connections, and makes only so many at a time. */
    static final class Pool implements AutoCloseable {
        final List<ManagedChannel> channels = new ArrayList<>();
        private final AtomicInteger next = new AtomicInteger();
        private final Semaphore free;

        /** A window of 0 bytes is left to the library: 1 MiB at first, and it grows with what the connection carries. */
        Pool(String address, int connections, int inFlight, int maxMessageBytes, int windowBytes) {
            for (int i = 0; i < connections; i++) {
                // Each channel has one connection of its own.
                var builder = NettyChannelBuilder.forTarget(address, InsecureChannelCredentials.create())
                        .maxInboundMessageSize(maxMessageBytes)
                        // Notices a peer that is gone without a word while calls wait for it.
                        .keepAliveTime(30, TimeUnit.SECONDS)
                        // Answers are handled on the thread that reads them: what is done there must not wait.
                        .directExecutor();
                if (windowBytes > 0) {
                    builder.flowControlWindow(windowBytes);
                }
                channels.add(builder.build());
            }
            free = new Semaphore(inFlight);
        }

        /** Waits for a free place; then the answer comes within ten seconds, or a failure does. */
        void get(ByteString key, BiConsumer<GetResponse, Throwable> then) throws InterruptedException {
            free.acquire();
            var channel = channels.get(Math.floorMod(next.getAndIncrement(), channels.size()));
            var store = KeyValueGrpc.newStub(channel).withDeadlineAfter(10, TimeUnit.SECONDS);
            store.get(GetRequest.newBuilder().setKey(key).build(), new StreamObserver<>() {
                private GetResponse response;

                @Override
                public void onNext(GetResponse answer) {
                    response = answer;
                }

                @Override
                public void onError(Throwable error) {
                    free.release();
                    then.accept(null, error);
                }

                @Override
                public void onCompleted() {
                    free.release();
                    then.accept(response, null);
                }
            });
        }

        @Override
        public void close() throws InterruptedException {
            for (var channel : channels) {
                channel.shutdown().awaitTermination(5, TimeUnit.SECONDS);
            }
        }
    }

    private static final ByteString GREETING = ByteString.copyFromUtf8("greeting");
    private static final ByteString LARGE = ByteString.copyFromUtf8("large");

    /** So many Gets; their latencies in nanoseconds, sorted. */
    private static long[] many(Pool pool, int calls) throws InterruptedException {
        var latencies = new long[calls];
        var answered = new CountDownLatch(calls);
        for (int call = 0; call < calls; call++) {
            var index = call;
            var begin = System.nanoTime();
            pool.get(GREETING, (answer, error) -> {
                if (error != null) {
                    error.printStackTrace();
                    System.exit(1);
                }
                latencies[index] = System.nanoTime() - begin;
                answered.countDown();
            });
        }
        answered.await();
        Arrays.sort(latencies);
        return latencies;
    }

    private static Status.Code statusOfLarge(Pool pool) throws InterruptedException {
        var code = new Status.Code[] {Status.Code.OK};
        var ended = new CountDownLatch(1);
        pool.get(LARGE, (answer, error) -> {
            if (error != null) {
                code[0] = Status.fromThrowable(error).getCode();
            }
            ended.countDown();
        });
        ended.await();
        return code[0];
    }

    private static void tryRecipes(String address) throws InterruptedException {
        try (var pool = new Pool(address, 4, 64, 4 << 20, 0)) {
            var channel = pool.channels.get(0);
            var store = KeyValueGrpc.newBlockingStub(channel).withDeadlineAfter(20, TimeUnit.SECONDS);
            store.put(PutRequest.newBuilder().setKey(GREETING).setValue(ByteString.copyFromUtf8("hello")).build());
            System.out.println(many(pool, 2000).length + " answers");
            var admin = AdminGrpc.newBlockingStub(channel).withDeadlineAfter(20, TimeUnit.SECONDS);
            var statistics = admin.statistics(StatisticsRequest.getDefaultInstance());
            System.out.println(statistics.getOpenConnections() + " connections");

            try {
                var echo = EchoGrpc.newBlockingStub(channel).withDeadlineAfter(100, TimeUnit.MILLISECONDS);
                echo.unary(EchoRequest.newBuilder().setDelayMs(10_000).build());
            } catch (StatusRuntimeException error) {
                System.out.println("no answer in 100 ms: " + error.getStatus().getCode());
            }

            var value = ByteString.copyFrom(new byte[5_000_000]);
            store.put(PutRequest.newBuilder().setKey(LARGE).setValue(value).build());
            System.out.println("5 MB: " + statusOfLarge(pool));
        }
        try (var pool = new Pool(address, 1, 64, 9 << 20, 4 << 20)) {
            System.out.println("5 MB with a higher limit: " + statusOfLarge(pool));
        }
    }

    private static long cpuNanos() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime();
    }

    private static void measure(String address, int connections, int inFlight, int calls) throws InterruptedException {
        try (var pool = new Pool(address, connections, inFlight, 4 << 20, 0)) {
            many(pool, calls); // lets the machine compile what is hot
            long begin = System.nanoTime();
            long cpu = cpuNanos();
            var latencies = many(pool, calls);
            double seconds = (System.nanoTime() - begin) / 1e9;
            cpu = cpuNanos() - cpu;
            System.out.printf("%.0f calls/s, p50 %d µs, p99 %d µs, %.1f µs of CPU per call%n", calls / seconds,
                    latencies[calls / 2] / 1000, latencies[(int) (calls * 0.99)] / 1000, cpu / 1e3 / calls);
        }
    }

    public static void main(String[] arguments) throws Exception {
        var address = System.getenv().getOrDefault("PELTON_ADDRESS", "127.0.0.1:1978");
        if (arguments.length == 0) {
            tryRecipes(address);
        } else {
            var numbers = Arrays.stream(arguments).mapToInt(Integer::parseInt).toArray();
            measure(address, numbers[0], numbers[1], numbers[2]);
        }
    }
}
