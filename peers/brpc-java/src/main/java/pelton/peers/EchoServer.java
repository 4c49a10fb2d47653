package pelton.peers;

import com.baidu.jprotobuf.pbrpc.ProtobufRPCService;
import com.baidu.jprotobuf.pbrpc.ServerAttachmentHandler;
import com.baidu.jprotobuf.pbrpc.transport.RpcServer;
import java.io.IOException;
import java.net.ServerSocket;

/** example.EchoService, as a Java program serves it. */
public final class EchoServer {
    private EchoServer() {}

    /** Returns messages as they came. */
    public static final class Service {
        @ProtobufRPCService(serviceName = Echo.SERVICE, methodName = "Echo",
                attachmentHandler = Attachment.class)
        public EchoMessage echo(EchoMessage request) {
            return request;
        }
    }

    /** Returns attachments as they came. */
    public static final class Attachment implements ServerAttachmentHandler {
        @Override
        public byte[] handleAttachement(byte[] attachment, String service, String method,
                Object... parameters) {
            return attachment;
        }
    }

    /** Port 0 is one that is free. */
    static void serve(int wanted) throws InterruptedException, IOException {
        int port = wanted;
        if (wanted == 0) {
            try (ServerSocket free = new ServerSocket(0)) {
                port = free.getLocalPort();
            }
        }
        RpcServer server = new RpcServer();
        server.registerService(new Service());
        server.start(port);
        System.out.println("listening on 127.0.0.1:" + port);
        server.waitForStop();
    }
}
