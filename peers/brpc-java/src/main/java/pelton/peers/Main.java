package pelton.peers;

import com.baidu.jprotobuf.pbrpc.ErrorDataException;
import com.baidu.jprotobuf.pbrpc.client.ProtobufRpcProxy;
import com.baidu.jprotobuf.pbrpc.transport.RpcClient;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.UnaryOperator;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * baidu_std as jprotobuf-rpc speaks it.
 *
 * <pre>
 * client HOST PORT    calls example.EchoService in all ways, and exits with 1 if one fails
 * server PORT         serves it
 * </pre>
 */
public final class Main {
    private static final int THREADS = 16;
    private static final int CALLS = 500;

    private Main() {}

    public static void main(String[] words) throws Exception {
        Logger.getLogger("").setLevel(Level.SEVERE);
        if (words.length == 2 && words[0].equals("server")) {
            EchoServer.serve(Integer.parseInt(words[1]));
        } else if (words.length == 3 && words[0].equals("client")) {
            call(words[1], Integer.parseInt(words[2]));
            System.exit(0);
        } else {
            System.err.println("usage: client HOST PORT | server PORT");
            System.exit(2);
        }
    }

    /** With pooled connections: those for one call each, the library closes too early. */
    private static void call(String host, int port) throws Exception {
        RpcClient client = new RpcClient();
        try {
            new Calls(client, host, port).check();
        } finally {
            client.stop();
        }
        System.out.println("jprotobuf_rpc: ok");
    }

    private record Calls(RpcClient client, String host, int port) {
        <T extends Echo> String echo(Class<T> kind, String text) {
            return proxy(kind).call(message(text)).message;
        }

        <T extends Echo> T proxy(Class<T> kind) {
            ProtobufRpcProxy<T> proxy = new ProtobufRpcProxy<>(client, kind);
            proxy.setHost(host);
            proxy.setPort(port);
            return proxy.proxy();
        }

        void check() throws Exception {
            for (String text : List.of("", "hello", "x".repeat(300_000))) {
                same("plain", echo(Echo.Plain.class, text), text);
                same("gzip", echo(Echo.Gzip.class, text), text);
                same("snappy", echo(Echo.Snappy.class, text), text);
            }
            for (String text : List.of("foo", "y".repeat(2_000_000))) {
                same("message", echo(Echo.Attached.class, text), text);
                same("attachment", new String(Echo.Attachment.received), text);
            }
            if (System.getenv("ECHO_TOKEN") != null) {
                same("with a token", echo(Echo.WithToken.class, "hello"), "hello");
            }
            // 1002 as brpc's server has it, and 1001 from the one of this library.
            refused(() -> echo(Echo.MissingMethod.class, "hello"), 1002, 1001);
            refused(() -> echo(Echo.MissingService.class, "hello"), 1002, 1001);
            same("after errors", echo(Echo.Plain.class, "hello"), "hello");
            Echo.Plain plain = proxy(Echo.Plain.class);
            together(text -> plain.call(message(text)).message);
        }
    }

    /** Calls from many threads: each gets the answer to its own call. */
    private static void together(UnaryOperator<String> call) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(THREADS);
        List<Future<?>> running = new ArrayList<>();
        for (int thread = 0; thread < THREADS; thread++) {
            int number = thread;
            running.add(threads.submit(() -> {
                for (int turn = 0; turn < CALLS; turn++) {
                    String text = number + "/" + turn;
                    same("of many", call.apply(text), text);
                }
            }));
        }
        for (Future<?> one : running) {
            one.get();
        }
        threads.shutdown();
    }

    private static EchoMessage message(String text) {
        EchoMessage message = new EchoMessage();
        message.message = text;
        return message;
    }

    private static void same(String what, String found, String expected) {
        if (!expected.equals(found)) {
            throw new AssertionError(what + ": not what was sent");
        }
    }

    private static void refused(Runnable call, Integer... codes) {
        try {
            call.run();
        } catch (Exception thrown) {
            for (Throwable cause = thrown; cause != null; cause = cause.getCause()) {
                if (cause instanceof ErrorDataException error) {
                    if (List.of(codes).contains(error.getErrorCode())) {
                        return;
                    }
                    throw new AssertionError(
                            "the error is " + error.getErrorCode(), thrown);
                }
            }
            throw new AssertionError("it failed otherwise", thrown);
        }
        throw new AssertionError("it did not fail");
    }
}
