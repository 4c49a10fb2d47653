package pelton.peers;

import com.baidu.jprotobuf.pbrpc.AuthenticationDataHandler;
import com.baidu.jprotobuf.pbrpc.ClientAttachmentHandler;
import com.baidu.jprotobuf.pbrpc.CompressType;
import com.baidu.jprotobuf.pbrpc.ProtobufRPC;

/** A call that the client makes: one interface each, since the library takes a method once. */
public interface Echo {
    String SERVICE = "example.EchoService";
    int TIMEOUT_MS = 30_000;

    EchoMessage call(EchoMessage request);

    /** The method as it is. */
    interface Plain extends Echo {
        @Override
        @ProtobufRPC(serviceName = SERVICE, methodName = "Echo",
                onceTalkTimeout = TIMEOUT_MS)
        EchoMessage call(EchoMessage request);
    }

    /** Requests are compressed by gzip. */
    interface Gzip extends Echo {
        @Override
        @ProtobufRPC(serviceName = SERVICE, methodName = "Echo",
                onceTalkTimeout = TIMEOUT_MS,
                compressType = CompressType.GZIP)
        EchoMessage call(EchoMessage request);
    }

    /** Requests are compressed by snappy. */
    interface Snappy extends Echo {
        @Override
        @ProtobufRPC(serviceName = SERVICE, methodName = "Echo",
                onceTalkTimeout = TIMEOUT_MS,
                compressType = CompressType.Snappy)
        EchoMessage call(EchoMessage request);
    }

    /** An attachment goes with the request. */
    interface Attached extends Echo {
        @Override
        @ProtobufRPC(serviceName = SERVICE, methodName = "Echo",
                onceTalkTimeout = TIMEOUT_MS,
                attachmentHandler = Attachment.class)
        EchoMessage call(EchoMessage request);
    }

    /** A token goes with the request. */
    interface WithToken extends Echo {
        @Override
        @ProtobufRPC(serviceName = SERVICE, methodName = "Echo",
                onceTalkTimeout = TIMEOUT_MS,
                authenticationDataHandler = Token.class)
        EchoMessage call(EchoMessage request);
    }

    /** A method that is not there. */
    interface MissingMethod extends Echo {
        @Override
        @ProtobufRPC(serviceName = SERVICE, methodName = "Missing",
                onceTalkTimeout = TIMEOUT_MS)
        EchoMessage call(EchoMessage request);
    }

    /** A service that is not there. */
    interface MissingService extends Echo {
        @Override
        @ProtobufRPC(serviceName = "example.Missing", methodName = "Echo",
                onceTalkTimeout = TIMEOUT_MS)
        EchoMessage call(EchoMessage request);
    }

    /** Sends the message's own text as the attachment, and keeps what comes back. */
    class Attachment implements ClientAttachmentHandler {
        static volatile byte[] received;

        @Override
        public byte[] handleRequest(String service, String method, Object... parameters) {
            return ((EchoMessage) parameters[0]).message.getBytes();
        }

        @Override
        public void handleResponse(byte[] bytes, String service, String method, Object... rest) {
            received = bytes;
        }
    }

    /** Sends the token of the environment. */
    class Token implements AuthenticationDataHandler {
        @Override
        public byte[] create(String service, String method, Object... parameters) {
            return System.getenv("ECHO_TOKEN").getBytes();
        }
    }
}
