//! The program as a tonic client sees it over TLS, with both drivers: unary calls, streams, blobs,
//! certificates of clients.

use std::fs;
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::transport::Channel;
use tonic_e2e::Server;
use tonic_e2e::certificates::{Authority, Identity};
use tonic_e2e::pelton::blob_client::BlobClient;
use tonic_e2e::pelton::key_value_client::KeyValueClient;
use tonic_e2e::pelton::operation::{Increment, Operation as Kind};
use tonic_e2e::pelton::upload_request::Part;
use tonic_e2e::pelton::{
    DownloadRequest, GetRequest, Operation, PipeRequest, PutRequest, ScanRequest, StatRequest,
    UploadBegin, UploadChunk, UploadEnd, UploadRequest, operation_result, scan_request,
};

const DRIVERS: [&str; 2] = ["event-loop", "blocking"];
const VALID: i32 = 2090;

fn text(path: &std::path::Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

/// A server with a certificate, the folder of its files, and the authority that signed it.
struct Secure {
    server: Server,
    authority: Authority,
    _folder: TempDir,
}

impl Secure {
    /// With a data folder. `mutual`: only clients of the same authority get in.
    async fn start(driver: &str, mutual: bool) -> Secure {
        let folder = TempDir::new().expect("a folder");
        let authority = Authority::new("authority of a test");
        let files = authority.sign("server", VALID).write(folder.path());
        let clients = folder.path().join("clients.pem");
        fs::write(&clients, authority.pem()).expect("written");
        let data = folder.path().join("data");
        let mut arguments = vec!["--driver", driver, "--data", text(&data)];
        arguments.extend(["--tls-cert", text(&files.certificate)]);
        arguments.extend(["--tls-key", text(&files.key)]);
        if mutual {
            arguments.extend(["--client-ca", text(&clients)]);
        }
        Secure {
            server: Server::start(&arguments).await,
            authority,
            _folder: folder,
        }
    }

    /// As a client without a certificate.
    async fn channel(&self) -> Channel {
        let channel = self.server.tls_channel(&self.authority.pem(), None).await;
        channel.expect("the server is trusted")
    }
}

fn put(key: &[u8], value: &[u8]) -> PutRequest {
    PutRequest {
        key: key.into(),
        value: value.into(),
        ..Default::default()
    }
}

fn get(key: &[u8]) -> GetRequest {
    GetRequest {
        key: key.into(),
        ..Default::default()
    }
}

/// Bytes of which no two places look alike.
fn content(length: u32) -> Vec<u8> {
    (0..length.div_ceil(4))
        .flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes())
        .take(length as usize)
        .collect()
}

// -------------------------------------------------------------------------------------------------
// Calls

#[tokio::test]
async fn unary_calls_small_and_large() {
    for driver in DRIVERS {
        let secure = Secure::start(driver, false).await;
        let channel = secure.channel().await;
        let large = content(4_000_000);
        let mut kv = KeyValueClient::new(channel.clone());
        kv.put(put(b"large", &large)).await.unwrap();
        assert_eq!(
            kv.get(get(b"large")).await.unwrap().into_inner().value,
            large
        );
        let mut calls = tokio::task::JoinSet::new();
        for number in 0..500u32 {
            let mut kv = KeyValueClient::new(channel.clone());
            calls.spawn(async move {
                let key = number.to_be_bytes();
                assert!(kv.put(put(&key, &key)).await.unwrap().into_inner().applied);
                assert_eq!(kv.get(get(&key)).await.unwrap().into_inner().value, key);
            });
        }
        while let Some(result) = calls.join_next().await {
            result.unwrap();
        }
        let unknown = GetRequest {
            database: "none".into(),
            ..get(b"k")
        };
        let refused = kv.get(unknown).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound, "{driver}");
    }
}

#[tokio::test]
async fn a_scan_of_many_pages() {
    for driver in DRIVERS {
        let secure = Secure::start(driver, false).await;
        let mut kv = KeyValueClient::new(secure.channel().await);
        let value = content(100_000);
        for number in 0..100u8 {
            kv.put(put(&[b's', number], &value)).await.unwrap();
        }
        let scan = ScanRequest {
            keys: Some(scan_request::Keys::Prefix(b"s".into())),
            ..Default::default()
        };
        let mut pages = kv.scan(scan).await.unwrap().into_inner();
        let mut found = Vec::new();
        while let Some(page) = pages.next().await {
            for entry in page.unwrap().entries {
                assert_eq!(entry.value, value);
                found.push(entry.key);
            }
        }
        let expected: Vec<_> = (0..100u8).map(|number| vec![b's', number]).collect();
        assert_eq!(found, expected, "{driver}");
    }
}

/// A batch that adds one to a counter.
fn add_one() -> PipeRequest {
    let increment = Increment {
        key: b"pipe".into(),
        delta: 1,
        ..Default::default()
    };
    PipeRequest {
        operations: vec![Operation {
            operation: Some(Kind::Increment(increment)),
        }],
        ..Default::default()
    }
}

/// Reads answers of a Pipe until `through` batches are done; each says what the counter was with
/// its own batch.
async fn read_answers(
    answers: &mut tonic::Streaming<tonic_e2e::pelton::PipeResponse>,
    batches: std::ops::RangeInclusive<u64>,
) {
    for number in batches {
        let answer = answers.next().await.expect("an answer").unwrap();
        assert_eq!(answer.batch_number, number);
        let results = answer.batch.expect("a batch").results;
        let Some(operation_result::Result::Increment(counted)) = &results[0].result else {
            panic!("{results:?}")
        };
        assert_eq!(counted.value, number as i64);
    }
}

#[tokio::test]
async fn a_pipe_one_by_one_and_all_at_once() {
    for driver in DRIVERS {
        let secure = Secure::start(driver, false).await;
        let mut kv = KeyValueClient::new(secure.channel().await);
        let (requests, receiver) = mpsc::channel(2_000);
        // The first batch goes with the call: tonic waits for the head of the answer.
        requests.send(add_one()).await.unwrap();
        let pipe = kv.pipe(ReceiverStream::new(receiver)).await;
        let mut answers = pipe.unwrap().into_inner();
        read_answers(&mut answers, 1..=1).await;
        for number in 2..=50 {
            requests.send(add_one()).await.unwrap();
            read_answers(&mut answers, number..=number).await;
        }
        for _ in 51..=2_000 {
            requests.send(add_one()).await.unwrap();
        }
        drop(requests);
        read_answers(&mut answers, 51..=2_000).await;
        assert!(answers.next().await.is_none(), "{driver}");
    }
}

// -------------------------------------------------------------------------------------------------
// Blobs

fn begin(name: &str, upload_id: &[u8], offset: u64) -> UploadRequest {
    let begin = UploadBegin {
        name: name.into(),
        upload_id: upload_id.into(),
        offset,
        ..Default::default()
    };
    UploadRequest {
        part: Some(Part::Begin(begin)),
    }
}

fn chunk(data: &[u8]) -> UploadRequest {
    let chunk = UploadChunk {
        data: data.into(),
        crc32c: Some(crc32c::crc32c(data)),
    };
    UploadRequest {
        part: Some(Part::Chunk(chunk)),
    }
}

fn end(content: &[u8]) -> UploadRequest {
    let end = UploadEnd {
        crc32c: Some(crc32c::crc32c(content)),
        ..Default::default()
    };
    UploadRequest {
        part: Some(Part::End(end)),
    }
}

async fn download(blobs: &mut BlobClient<Channel>, request: DownloadRequest) -> Vec<u8> {
    let mut answers = blobs.download(request).await.unwrap().into_inner();
    let mut found = Vec::new();
    while let Some(answer) = answers.next().await {
        let answer = answer.unwrap();
        assert_eq!(answer.crc32c, Some(crc32c::crc32c(&answer.data)));
        found.extend(answer.data);
    }
    found
}

#[tokio::test]
async fn a_blob_there_and_back() {
    for driver in DRIVERS {
        let secure = Secure::start(driver, false).await;
        let mut blobs = BlobClient::new(secure.channel().await);
        let data = content(20_000_003);
        let mut requests = vec![begin("b", b"", 0)];
        requests.extend(data.chunks(300_000).map(chunk));
        requests.push(end(&data));
        let answer = blobs.upload(tokio_stream::iter(requests)).await;
        let stored = answer.unwrap().into_inner().blob.expect("a description");
        assert_eq!(
            (stored.size_bytes, stored.crc32c),
            (data.len() as u64, crc32c::crc32c(&data))
        );
        let whole = DownloadRequest {
            name: "b".into(),
            ..Default::default()
        };
        assert!(
            download(&mut blobs, whole.clone()).await == data,
            "{driver}"
        );
        let range = DownloadRequest {
            offset: 7_654_321,
            length_bytes: 1_000_000,
            chunk_bytes: 70_000,
            ..whole
        };
        let expected = &data[7_654_321..8_654_321];
        assert!(download(&mut blobs, range).await == expected, "{driver}");
    }
}

/// Waits until this much of an upload is stored.
async fn wait_until_stored(blobs: &mut BlobClient<Channel>, upload_id: &[u8], expected: u64) {
    let asked = StatRequest {
        name: "b".into(),
        upload_id: upload_id.into(),
        ..Default::default()
    };
    let all_stored = async {
        while blobs
            .stat(asked.clone())
            .await
            .unwrap()
            .into_inner()
            .stored_bytes
            != expected
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(20), all_stored).await;
    ended.expect("what was sent is stored");
}

#[tokio::test]
async fn an_upload_that_broke_off_goes_on_over_another_connection() {
    for driver in DRIVERS {
        let secure = Secure::start(driver, false).await;
        let data = content(5_000_000);
        let (first, rest) = data.split_at(2_000_000);
        let mut asking = BlobClient::new(secure.channel().await);

        let mut broken = BlobClient::new(secure.channel().await);
        let (requests, receiver) = mpsc::channel(4);
        let upload =
            tokio::spawn(async move { broken.upload(ReceiverStream::new(receiver)).await });
        requests.send(begin("b", b"mine", 0)).await.unwrap();
        for part in first.chunks(100_000) {
            requests.send(chunk(part)).await.unwrap();
        }
        wait_until_stored(&mut asking, b"mine", 2_000_000).await;
        upload.abort();
        assert!(upload.await.unwrap_err().is_cancelled());
        let visible = asking.stat(StatRequest {
            name: "b".into(),
            ..Default::default()
        });
        assert!(!visible.await.unwrap().into_inner().found, "{driver}");

        let mut again = BlobClient::new(secure.channel().await);
        let mut requests = vec![begin("b", b"mine", 2_000_000)];
        requests.extend(rest.chunks(100_000).map(chunk));
        requests.push(end(&data));
        let answer = again.upload(tokio_stream::iter(requests)).await.unwrap();
        assert!(answer.into_inner().applied, "{driver}");
        let whole = DownloadRequest {
            name: "b".into(),
            ..Default::default()
        };
        assert!(download(&mut again, whole).await == data, "{driver}");
    }
}

// -------------------------------------------------------------------------------------------------
// Who gets in

/// Whether a client reaches the server and is served.
async fn is_served(server: &Server, authority: &Authority, own: Option<&Identity>) -> bool {
    let Ok(channel) = server.tls_channel(&authority.pem(), own).await else {
        return false;
    };
    match KeyValueClient::new(channel).put(put(b"k", b"v")).await {
        Ok(answer) => answer.into_inner().applied,
        Err(status) => {
            // What a client makes of a connection that ends under it.
            assert!(
                matches!(status.code(), Code::Unavailable | Code::Unknown),
                "{status}"
            );
            false
        }
    }
}

#[tokio::test]
async fn mutual_tls() {
    for driver in DRIVERS {
        let Secure {
            server,
            authority,
            _folder,
        } = Secure::start(driver, true).await;
        let stranger = Authority::new("nobody's authority");
        let known = authority.sign("client", VALID);
        assert!(
            is_served(&server, &authority, Some(&known)).await,
            "{driver}"
        );
        let strange = stranger.sign("client", VALID);
        let expired = authority.sign("client", 2021);
        for refused in [None, Some(&strange), Some(&expired)] {
            assert!(!is_served(&server, &authority, refused).await, "{driver}");
        }
        assert!(
            is_served(&server, &authority, Some(&known)).await,
            "{driver}"
        );

        // Streams too, with a certificate.
        let channel = server.tls_channel(&authority.pem(), Some(&known)).await;
        let mut blobs = BlobClient::new(channel.unwrap());
        let data = content(300_000);
        let requests = vec![begin("b", b"", 0), chunk(&data), end(&data)];
        let answer = blobs.upload(tokio_stream::iter(requests)).await.unwrap();
        assert!(answer.into_inner().applied, "{driver}");
    }
}

#[tokio::test]
async fn a_client_that_trusts_another_authority_stays_away() {
    let secure = Secure::start(DRIVERS[0], false).await;
    let stranger = Authority::new("nobody's authority");
    assert!(
        secure
            .server
            .tls_channel(&stranger.pem(), None)
            .await
            .is_err()
    );
    assert!(is_served(&secure.server, &secure.authority, None).await);
}

#[tokio::test]
async fn a_certificate_for_a_first_try() {
    let folder = TempDir::new().expect("a folder");
    let flag = format!("--tls-self-signed={}", text(folder.path()));
    let server = Server::start(&[&flag]).await;
    let authority = fs::read_to_string(folder.path().join("ca.pem")).expect("it was made");
    let channel = server.tls_channel(&authority, None).await.unwrap();
    let mut kv = KeyValueClient::new(channel);
    assert!(kv.put(put(b"k", b"v")).await.unwrap().into_inner().applied);
    assert_eq!(kv.get(get(b"k")).await.unwrap().into_inner().value, b"v");
}
