//! Every method that names a database refuses those who have no right there, before it looks
//! whether there is such a database.

use api::admin::{ConvertDatabaseRequest, DatabaseKind};
use protobuf::writer;

use crate::compat::gupload_tests::bench::Bench;
use crate::fake::{Fake, Headers, Sent};
use crate::method::{Access, DatabaseName, Method};
use crate::rights::Right;
use crate::status::{Code, Status};

/// A request that names a database, and nothing else but a blob where there are blobs.
fn request(method: Method, numbers: &[u32], database: &str) -> Vec<u8> {
    let mut message = Vec::new();
    if method == Method::AdminConvertDatabase {
        let kind = DatabaseKind::Disk.number();
        let request = ConvertDatabaseRequest {
            name: database,
            kind,
        };
        request.encode(&mut message);
        return message;
    }
    writer::bytes(
        &mut message,
        numbers[numbers.len() - 1],
        database.as_bytes(),
    );
    if method.label().starts_with("pelton.v1.Blob") && method != Method::BlobListUploads {
        writer::bytes(&mut message, 2, b"images/a");
    }
    for &number in numbers.iter().rev().skip(1) {
        let inner = std::mem::take(&mut message);
        writer::bytes(&mut message, number, &inner);
    }
    message
}

/// How a call of somebody with these rights ends that names `database`; `None`: it goes on.
fn ends(method: Method, rights: Option<&[&str]>, database: &str, bench: &Bench) -> Option<Status> {
    let shared = &bench.shared;
    let mut fake = match method.entry().database {
        DatabaseName::Field(numbers) => {
            let mut fake = Fake::of(rights, method, shared);
            let request = request(method, numbers, database);
            fake.message(&request, method != Method::BlobUpload, shared);
            fake
        }
        DatabaseName::InQuery => {
            let path = format!("/blob/images/a?database={database}");
            let headers = Headers(vec![(b":path".to_vec(), path.into_bytes())]);
            Fake::with(rights, method, &headers, shared)
        }
        _ => unreachable!("only of those that name a database"),
    };
    match fake.take_sent().into_iter().next() {
        Some(Sent::Status(status)) => Some(status),
        _ => None,
    }
}

/// The right that a request without operations needs.
fn needed(method: Method) -> Right {
    match method.entry().access {
        Access::Write => Right::Write,
        Access::Administer => Right::Admin,
        _ => Right::Read,
    }
}

fn naming() -> impl Iterator<Item = Method> {
    let names = |method: &Method| {
        let database = method.entry().database;
        matches!(database, DatabaseName::Field(_) | DatabaseName::InQuery)
    };
    Method::ALL.iter().copied().filter(names)
}

#[test]
fn a_refusal_does_not_tell_which_databases_there_are() {
    let mut bench = Bench::new();
    bench.create_database("there");
    for method in naming() {
        let needed = needed(method);
        let less = Right::ALL.into_iter().filter(|right| *right < needed);
        let less: Vec<String> = less
            .map(|right| format!("{}:there", right.name()))
            .collect();
        let mut too_little: Vec<&[&str]> = vec![
            &["admin:other", "admin:default"],
            &["write:there/videos/", "write:other/images/"],
            &["service:gupload", "service:kvstore"],
        ];
        let less: Vec<&str> = less.iter().map(String::as_str).collect();
        too_little.push(&less);
        for rights in too_little {
            let told = ["there", "gone!"].map(|name| {
                let status = ends(method, Some(rights), name, &bench);
                let status = status.unwrap_or_else(|| panic!("{method:?} with {rights:?}"));
                assert_eq!(
                    status.code(),
                    Code::PermissionDenied,
                    "{method:?} {rights:?}"
                );
                status.message().replace(name, "NAME")
            });
            assert_eq!(told[0], told[1], "{method:?}");
        }
        for name in ["there", "gone!"] {
            let status = ends(method, None, name, &bench).expect("nobody calls");
            assert_eq!(status.code(), Code::Unauthenticated, "{method:?}");
        }
    }
}

#[test]
fn who_has_the_right_is_told_that_there_is_no_such_database() {
    let bench = Bench::new();
    for method in naming() {
        let on_database = format!("{}:gone", needed(method).name());
        let on_server = needed(method).name();
        for rights in [&*on_database, on_server] {
            let status = ends(method, Some(&[rights]), "gone", &bench);
            let code = status.map(|status| status.code());
            let expected = match method {
                // Made, or not there to be dropped.
                Method::AdminCreateDatabase | Method::AdminDropDatabase => None,
                _ => Some(Code::NotFound),
            };
            assert_eq!(code, expected, "{method:?} with {rights}");
        }
    }
}

#[test]
fn a_right_on_blobs_is_good_for_those_whose_names_begin_so() {
    let bench = Bench::new();
    for method in naming().filter(|method| method.label().contains("Blob")) {
        let right = needed(method).name();
        for (prefix, is_good) in [
            ("", true),
            ("images/", true),
            ("images/a", true),
            ("images/a/", false),
            ("images/b", false),
        ] {
            // A list of all uploads names no blob.
            let is_good = is_good && (method != Method::BlobListUploads || prefix.is_empty());
            let rights = format!("{right}:gone/{prefix}");
            let status = ends(method, Some(&[&rights]), "gone", &bench).expect("it ends");
            let expected = match is_good {
                true => Code::NotFound,
                false => Code::PermissionDenied,
            };
            assert_eq!(status.code(), expected, "{method:?} with {rights}");
        }
    }
}

/// The drop-in services have their databases from the settings of the server.
#[test]
fn a_drop_in_service_is_for_those_who_may_use_its_database_or_have_it_by_name() {
    let mut bench = Bench::new();
    bench.shared.settings.kvstore.database = "gone".into();
    for method in [
        Method::KvstoreCreate,
        Method::KvstoreRetrieve,
        Method::KvstoreUpdate,
        Method::KvstoreDelete,
    ] {
        let right = needed(method).name();
        for (rights, expected) in [
            (Some("service:kvstore".to_owned()), Code::FailedPrecondition),
            (Some(format!("{right}:gone")), Code::FailedPrecondition),
            (Some(format!("{right}:default")), Code::PermissionDenied),
            (Some("service:gupload".to_owned()), Code::PermissionDenied),
            (None, Code::Unauthenticated),
        ] {
            let rights: Option<Vec<&str>> = rights.as_ref().map(|right| vec![&**right]);
            let mut fake = Fake::of(rights.as_deref(), method, &bench.shared);
            fake.message(&[], true, &bench.shared);
            let status = fake.take_status().expect("there is no such database");
            assert_eq!(status.code(), expected, "{method:?} with {rights:?}");
        }
    }
    for (rights, code) in [
        (Some("service:gupload"), None),
        (Some("write:default"), None),
        (Some("write:default/gupload/"), None),
        (Some("write:default/"), None),
        (Some("write:default/images/"), Some(Code::PermissionDenied)),
        (Some("read"), Some(Code::PermissionDenied)),
        (Some("write:gone"), Some(Code::PermissionDenied)),
        (None, Some(Code::Unauthenticated)),
    ] {
        for method in [Method::GuploadUpload, Method::HttpGupload] {
            let rights: Option<Vec<&str>> = rights.map(|right| vec![right]);
            let mut fake = Fake::of(rights.as_deref(), method, &bench.shared);
            let found = fake.take_status().map(|status| status.code());
            assert_eq!(found, code, "{method:?} with {rights:?}");
        }
    }
}
