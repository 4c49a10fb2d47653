//! Responses that wait: what they share with others, and callers that are known no more.

use super::*;

/// Three calls whose responses do not fit into the output: some of the first one has gone out.
fn with_three() -> Echo {
    let mut echo = Echo::new(FramedProtocol::BaiduStd);
    echo.connection.config.output_bound_bytes = 10_000;
    for id in 1..=3 {
        echo.receive(&frame_of(&format!("{META} 200{id}"), &body(id)));
    }
    assert_eq!((echo.out.len(), echo.connection.running()), (10_000, 3));
    echo
}

fn body(id: u8) -> Vec<u8> {
    vec![b'a' + id; 15_000]
}

fn answer(id: u8) -> Vec<u8> {
    frame_of(&format!("12020800 1800 200{id} 500058006200"), &body(id))
}

/// The stream of one of them.
fn stream(id: u8) -> StreamKey {
    StreamKey {
        slot: u32::from(id) - 1,
        id: u32::from(id),
    }
}

#[test]
fn a_response_that_waits_whole_becomes_an_error_and_the_others_stay_as_they_are() {
    let ended = Status::new(Code::Unauthenticated, "ended");
    for id in [2, 3] {
        let mut echo = with_three();
        let connection = &mut echo.connection;
        assert!(connection.has_unsent(stream(id)));
        let before = (connection.queued_bytes(), connection.held_bytes());
        connection.cut_off(stream(id), &ended);
        let after = (connection.queued_bytes(), connection.held_bytes());
        let all = echo.take_all();
        let mut expected = Vec::new();
        let mut error_bytes = 0;
        for other in 1..=3 {
            let answer = answer(other);
            if other == id {
                error_bytes = all.len() - 2 * answer.len();
                let error = &all[expected.len()..][..error_bytes];
                let (code, text) = error_of(error);
                assert_eq!((code, &*text), (1004, "[E1004]ended"));
                expected.extend_from_slice(error);
            } else {
                expected.extend(answer);
            }
        }
        assert!(all == expected, "{id}");
        let less = answer(id).len() - error_bytes;
        assert_eq!(after, (before.0 - less, before.1 - less));
        let connection = &echo.connection;
        let left = (
            connection.queued_bytes(),
            connection.held_bytes(),
            connection.running(),
        );
        assert_eq!(left, (0, 0, 0));
    }
}

#[test]
fn a_response_of_which_some_has_gone_out_is_cut_off_by_the_end_of_the_connection() {
    let mut echo = with_three();
    let ended = Status::new(Code::Unauthenticated, "ended");
    // One that does not wait any more, or never did.
    echo.connection.cut_off(stream(4), &ended);
    assert_eq!(echo.connection.close_reason(), None);
    echo.connection.cut_off(stream(1), &ended);
    let reason = echo.connection.close_reason();
    assert!(matches!(
        reason,
        Some(CloseReason::Error {
            code: ErrorCode::Cancel,
            ..
        })
    ));
    assert_eq!(
        (echo.connection.queued_bytes(), echo.connection.running()),
        (0, 0)
    );
}

#[test]
fn what_a_response_shares_counts_as_held_and_not_as_buffered_until_it_has_gone_out() {
    const SHARED: usize = 30_000;
    let mut echo = Echo::new(FramedProtocol::BaiduStd);
    echo.connection.config.output_bound_bytes = 10_000;
    echo.echoes = false;
    let request = frame(&format!("{META} 2001"), HELLO);
    for _ in 0..2 {
        echo.receive(&request);
        let (stream, _) = echo.open.remove(0);
        let shared = bytes::Bytes::from(vec![7; SHARED]).into();
        (echo.connection).send_shared(stream, |out| out.extend_from_slice(b"head"), shared);
        echo.connection.finish(stream, &mut echo.out, &Status::OK);
        let mut left = SHARED;
        while echo.connection.wants_transmit() {
            let connection = &echo.connection;
            assert!((1..left).contains(&connection.queued_bytes()));
            left = connection.queued_bytes();
            let not_shared = connection.held_bytes() - connection.buffered_bytes();
            assert_eq!(not_shared, left);
            echo.out.clear();
            echo.connection.transmit(&mut echo.out, 0);
        }
        echo.out.clear();
        let connection = &echo.connection;
        assert_eq!(
            (connection.held_bytes(), connection.buffered_bytes()),
            (0, 0)
        );
    }
}
