//! The examples at the beginning of the documentation, against each other.

#[allow(dead_code, reason = "an example has a main function of its own")]
#[path = "../examples/echo_client.rs"]
mod client;
#[allow(dead_code, reason = "an example has a main function of its own")]
#[path = "../examples/echo_server.rs"]
mod server;

use std::net::{TcpListener, TcpStream};

use wire::grpc::Status;

#[test]
fn the_examples_understand_each_other() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    // The last is larger than all windows and the buffers of the sockets.
    let requests = [0, 1, 100_000, 3_000_000].map(|bytes| vec![7; bytes]);
    let calls = requests.len();
    let server = std::thread::spawn(move || {
        for socket in listener.incoming().take(calls) {
            server::serve(socket?)?;
        }
        Ok::<_, std::io::Error>(())
    });
    for request in requests {
        let (response, status) =
            client::call(TcpStream::connect(address)?, "/example.Echo/Echo", &request)?;
        assert_eq!(status, Status::OK);
        assert!(response == request, "{} bytes", request.len());
    }
    server.join().expect("the server does not panic")
}
