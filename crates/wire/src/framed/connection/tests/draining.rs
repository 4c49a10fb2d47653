//! The end of a connection that drains.

use super::*;

/// A connection whose drain is over but for a call whose response waits for the output, which has
/// been taken by now.
fn with_waiting_response(protocol: FramedProtocol) -> Echo {
    let mut echo = Echo::new(protocol);
    echo.connection.config.output_bound_bytes = 10_000;
    echo.receive(&long_request(protocol));
    echo.connection.drain(echo.now_ns);
    echo.now_ns = echo.connection.next_deadline_ns().expect("a timer");
    echo.connection.deadline_passed(echo.now_ns);
    assert_eq!(echo.take().len(), 10_000);
    assert_eq!(
        (echo.connection.running(), echo.connection.close_reason()),
        (1, None)
    );
    echo
}

/// A request whose response does not fit into the output.
fn long_request(protocol: FramedProtocol) -> Vec<u8> {
    let body = [0x78; 15_000];
    match protocol {
        FramedProtocol::BaiduStd => frame_of(&format!("{META} 2001"), &body),
        FramedProtocol::Srpc => srpc_frame_of("0a0d 0a05 4563686f58 1204 4563686f", &body),
    }
}

#[test]
fn a_connection_that_drains_ends_when_no_call_runs_and_its_time_is_over() {
    let stopping = Status::new(Code::Unavailable, "stopping");
    let mut echo = Echo::new(FramedProtocol::BaiduStd);
    echo.echoes = false;
    echo.receive(&frame(&format!("{META} 2001"), HELLO));
    let (stream, _) = echo.open[0];
    echo.connection.drain(0);
    let due_ns = echo.connection.next_deadline_ns().expect("a timer");
    echo.connection.deadline_passed(due_ns);
    assert_eq!(echo.connection.close_reason(), None);
    echo.connection.finish(stream, &mut echo.out, &stopping);
    assert_eq!(error_of(&echo.take()).0, 2003);
    assert_eq!(echo.connection.close_reason(), Some(&CloseReason::Drained));
    // While it is not stopping, the server is busy.
    let mut echo = Echo::new(FramedProtocol::BaiduStd);
    echo.echoes = false;
    echo.receive(&frame(&format!("{META} 2001"), HELLO));
    let (stream, _) = echo.open[0];
    echo.connection.finish(stream, &mut echo.out, &stopping);
    assert_eq!(error_of(&echo.take()).0, 2004);
}

/// The rest of the response before it goes out with the refusal.
#[test]
fn a_connection_that_drains_ends_with_the_refusal_of_an_unknown_method() {
    for protocol in [FramedProtocol::BaiduStd, FramedProtocol::Srpc] {
        for has_service in [true, false] {
            let mut echo = with_waiting_response(protocol);
            let (mut consumed, request) = (0, long_request(protocol));
            let Echo {
                connection,
                out,
                now_ns,
                ..
            } = &mut echo;
            let event = connection.poll_event(&request, &mut consumed, out, *now_ns);
            let Some(Event::Request { stream, .. }) = event else {
                panic!("{event:?}");
            };
            connection.finish_unknown(stream, out, has_service);
            assert!(out.len() > 5_000 && !connection.wants_transmit());
            assert_eq!(connection.close_reason(), Some(&CloseReason::Drained));
            // It is known only once that the call is over.
            connection.finish_unknown(stream, out, has_service);
            assert_eq!(connection.running(), 0);
        }
    }
}

#[test]
fn a_connection_that_drains_ends_with_the_refusal_of_a_frame_that_is_no_call() {
    let no_calls = [
        (FramedProtocol::BaiduStd, frame("2001", HELLO)),
        (FramedProtocol::Srpc, srpc_frame("0aff", HELLO)),
    ];
    for (protocol, no_call) in no_calls {
        let mut echo = with_waiting_response(protocol);
        echo.receive(&no_call);
        assert!(echo.out.len() > 5_000 && !echo.connection.wants_transmit());
        assert_eq!(echo.connection.close_reason(), Some(&CloseReason::Drained));
    }
}

#[test]
fn a_connection_that_drains_ends_with_a_damaged_request() {
    let mut echo = with_waiting_response(FramedProtocol::BaiduStd);
    echo.receive(&frame(&format!("{META} 1802 2001"), HELLO));
    assert!(echo.out.len() > 5_000 && !echo.connection.wants_transmit());
    assert_eq!(echo.connection.close_reason(), Some(&CloseReason::Drained));
}

/// What its peer has not taken of them would be missing.
#[test]
fn a_connection_that_drains_ends_when_its_last_refusal_has_gone_out() {
    let mut echo = Echo::new(FramedProtocol::BaiduStd);
    echo.connection.config.output_bound_bytes = 60;
    let no_call = frame("2001", HELLO);
    echo.receive(&no_call.repeat(3));
    echo.connection.drain(0);
    let due_ns = echo.connection.next_deadline_ns().expect("a timer");
    echo.connection.deadline_passed(due_ns);
    assert_eq!(echo.connection.running(), 0);
    let all = echo.take_all();
    let refusals = all.windows(4).filter(|bytes| bytes == b"PRPC").count();
    assert_eq!(refusals, 3);
    assert_eq!(error_of(&all[..all.len() / 3]).0, 1001);
    assert_eq!(echo.connection.close_reason(), Some(&CloseReason::Drained));
}
