package pelton.peers;

import com.baidu.bjf.remoting.protobuf.FieldType;
import com.baidu.bjf.remoting.protobuf.annotation.Protobuf;

/** Request and response of example.EchoService: one required string. */
public class EchoMessage {
    @Protobuf(fieldType = FieldType.STRING, order = 1, required = true)
    public String message;
}
