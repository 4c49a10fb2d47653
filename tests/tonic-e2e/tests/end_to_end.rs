//! The program as a tonic client sees it.

use std::time::Duration;

use tokio_stream::StreamExt;
use tonic::codec::CompressionEncoding;
use tonic::{Code, Request};
use tonic_e2e::Server;
use tonic_e2e::health::health_check_response::ServingStatus;
use tonic_e2e::health::{HealthCheckRequest, health_client::HealthClient};
use tonic_e2e::pelton::echo_client::EchoClient;
use tonic_e2e::pelton::key_value_client::KeyValueClient;
use tonic_e2e::pelton::operation::Operation as Kind;
use tonic_e2e::pelton::{
    AppendRequest, BatchRequest, CountRequest, DeleteRequest, EchoRequest, GetRequest,
    IncrementRequest, Operation, PutRequest, ScanRequest, WatchRequest, count_request, operation,
    operation_result, put_request, scan_request,
};

fn get(key: &[u8]) -> GetRequest {
    GetRequest {
        key: key.into(),
        ..Default::default()
    }
}

fn put(key: &[u8], value: &[u8]) -> PutRequest {
    PutRequest {
        key: key.into(),
        value: value.into(),
        ..Default::default()
    }
}

#[tokio::test]
async fn every_method_of_key_value() {
    let server = Server::start(&[]).await;
    let mut kv = KeyValueClient::new(server.channel().await);

    assert!(!kv.get(get(b"k")).await.unwrap().into_inner().found);
    let written = kv.put(put(b"k", b"value")).await.unwrap().into_inner();
    assert!(written.applied);
    let read = kv.get(get(b"k")).await.unwrap().into_inner();
    assert_eq!(
        (read.found, &read.value[..], read.version),
        (true, &b"value"[..], written.version)
    );

    let unmet = PutRequest {
        condition: Some(put_request::Condition::IfVersion(0)),
        ..put(b"k", b"other")
    };
    assert!(!kv.put(unmet).await.unwrap().into_inner().applied);

    let append = AppendRequest {
        key: b"k".into(),
        value: b"+".into(),
        ..Default::default()
    };
    assert_eq!(kv.append(append).await.unwrap().into_inner().length, 6);
    let increment = IncrementRequest {
        key: b"n".into(),
        delta: -3,
        ..Default::default()
    };
    assert_eq!(
        kv.increment(increment).await.unwrap().into_inner().value,
        -3
    );

    let operations = vec![
        Operation {
            operation: Some(Kind::Put(operation::Put {
                key: b"b".into(),
                value: b"1".into(),
                ..Default::default()
            })),
        },
        Operation {
            operation: Some(Kind::Get(operation::Get { key: b"b".into() })),
        },
    ];
    let batch = kv
        .batch(BatchRequest {
            operations,
            ..Default::default()
        })
        .await
        .unwrap()
        .into_inner();
    assert!(batch.applied);
    let Some(operation_result::Result::Get(own_write)) = &batch.results[1].result else {
        panic!("{batch:?}")
    };
    assert_eq!(own_write.value, b"1");

    let all = CountRequest {
        keys: Some(count_request::Keys::Prefix(Vec::new())),
        ..Default::default()
    };
    assert_eq!(kv.count(all).await.unwrap().into_inner().count, 3);

    let delete = DeleteRequest {
        key: b"k".into(),
        return_previous: true,
        ..Default::default()
    };
    let deleted = kv.delete(delete).await.unwrap().into_inner();
    assert_eq!(deleted.previous.unwrap().value, b"value+");
}

#[tokio::test]
async fn statuses_and_their_messages_arrive() {
    let server = Server::start(&[]).await;
    let mut kv = KeyValueClient::new(server.channel().await);
    let unknown = kv
        .get(GetRequest {
            database: "größe 100%".into(),
            ..get(b"k")
        })
        .await
        .unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    assert!(
        unknown.message().contains("größe 100%"),
        "{}",
        unknown.message()
    );
    let too_long = kv.put(put(&[b'k'; 65_536], b"")).await.unwrap_err();
    assert_eq!(too_long.code(), Code::ResourceExhausted);
    let elsewhere = WatchRequest {
        database: "no such one".to_owned(),
        ..Default::default()
    };
    let unknown = kv.watch(elsewhere).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    let nothing = vec![Operation { operation: None }];
    let wrong = kv
        .batch(BatchRequest {
            operations: nothing,
            ..Default::default()
        })
        .await
        .unwrap_err();
    assert_eq!(wrong.code(), Code::InvalidArgument);
    assert!(
        wrong.message().contains("operations[0]"),
        "{}",
        wrong.message()
    );
}

#[tokio::test]
async fn large_values_and_long_scans() {
    let server = Server::start(&[]).await;
    let mut kv = KeyValueClient::new(server.channel().await);
    let value: Vec<u8> = (0..4_000_000u32).map(|index| index as u8).collect();
    for number in 0..10 {
        kv.put(put(format!("large/{number}").as_bytes(), &value))
            .await
            .unwrap();
    }
    assert_eq!(
        kv.get(get(b"large/7")).await.unwrap().into_inner().value,
        value
    );
    let scan = ScanRequest {
        keys: Some(scan_request::Keys::Prefix(b"large/".into())),
        ..Default::default()
    };
    let mut pages = kv.scan(scan.clone()).await.unwrap().into_inner();
    let mut entries = 0;
    while let Some(page) = pages.next().await {
        entries += page
            .unwrap()
            .entries
            .iter()
            .inspect(|entry| assert_eq!(entry.value, value))
            .count();
    }
    assert_eq!(entries, 10);

    // Dropped in the middle: the connection serves on.
    for _ in 0..10 {
        let mut abandoned = kv.scan(scan.clone()).await.unwrap().into_inner();
        abandoned.next().await.unwrap().unwrap();
    }
    assert!(kv.get(get(b"large/0")).await.unwrap().into_inner().found);
}

#[tokio::test]
async fn gzip_both_ways() {
    let server = Server::start(&[]).await;
    let mut kv = KeyValueClient::new(server.channel().await)
        .send_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Gzip);
    let value = b"compressible ".repeat(10_000);
    assert!(
        kv.put(put(b"k", &value))
            .await
            .unwrap()
            .into_inner()
            .applied
    );
    assert_eq!(kv.get(get(b"k")).await.unwrap().into_inner().value, value);
}

#[tokio::test]
async fn deadlines_and_cancellation() {
    let server = Server::start(&[]).await;
    let mut echo = EchoClient::new(server.channel().await);
    let slow = EchoRequest {
        delay_ms: 30_000,
        ..Default::default()
    };
    let mut request = Request::new(slow.clone());
    request.set_timeout(Duration::from_millis(100));
    let late = tokio::time::timeout(Duration::from_secs(5), echo.unary(request))
        .await
        .expect("the deadline is kept");
    assert!(matches!(
        late.unwrap_err().code(),
        Code::DeadlineExceeded | Code::Cancelled
    ));
    for _ in 0..100 {
        let call = echo.unary(slow.clone());
        assert!(
            tokio::time::timeout(Duration::from_millis(2), call)
                .await
                .is_err()
        );
    }
    let answer = echo
        .unary(EchoRequest {
            payload: b"alive".into(),
            ..Default::default()
        })
        .await
        .unwrap();
    assert_eq!(answer.into_inner().payload, b"alive");
}

#[tokio::test]
async fn a_stream_both_ways() {
    let server = Server::start(&[]).await;
    let mut echo = EchoClient::new(server.channel().await);
    let requests = (0..1_000u32).map(|number| EchoRequest {
        payload: number.to_be_bytes().into(),
        ..Default::default()
    });
    let mut answers = echo
        .stream(tokio_stream::iter(requests))
        .await
        .unwrap()
        .into_inner();
    let mut expected = 0u32;
    while let Some(answer) = answers.next().await {
        assert_eq!(answer.unwrap().payload, expected.to_be_bytes());
        expected += 1;
    }
    assert_eq!(expected, 1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_calls_at_once() {
    let server = Server::start(&["--threads", "2"]).await;
    let channels = [server.channel().await, server.channel().await];
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..4_000u32 {
        let mut kv = KeyValueClient::new(channels[number as usize % 2].clone());
        calls.spawn(async move {
            let key = number.to_be_bytes();
            assert!(kv.put(put(&key, &key)).await.unwrap().into_inner().applied);
            assert_eq!(kv.get(get(&key)).await.unwrap().into_inner().value, key);
            let increment = IncrementRequest {
                key: b"total".into(),
                delta: 1,
                ..Default::default()
            };
            kv.increment(increment).await.unwrap();
        });
    }
    while let Some(result) = calls.join_next().await {
        result.unwrap();
    }
    let mut kv = KeyValueClient::new(channels[0].clone());
    let increment = IncrementRequest {
        key: b"total".into(),
        delta: 0,
        ..Default::default()
    };
    assert_eq!(
        kv.increment(increment).await.unwrap().into_inner().value,
        4_000
    );
}

#[tokio::test]
async fn health_and_a_graceful_stop() {
    let mut server = Server::start(&[]).await;
    let channel = server.channel().await;
    let mut health = HealthClient::new(channel.clone());
    let check = health
        .check(HealthCheckRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(check.status(), ServingStatus::Serving);
    let mut watch = health
        .watch(HealthCheckRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        watch.next().await.unwrap().unwrap().status(),
        ServingStatus::Serving
    );

    let mut echo = EchoClient::new(channel);
    let slow = EchoRequest {
        payload: b"still answered".into(),
        delay_ms: 800,
        ..Default::default()
    };
    let running = tokio::spawn(async move { echo.unary(slow).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.terminate().await;
    assert_eq!(
        watch.next().await.unwrap().unwrap().status(),
        ServingStatus::NotServing
    );
    assert_eq!(
        running.await.unwrap().unwrap().into_inner().payload,
        b"still answered"
    );
    assert_eq!(server.wait().await, Some(0));
}
