//! `grpc.health.v1.Health`: which services are ready, asked once or watched.
//!
//! The statuses lie in a [`Registry`] that all loops share. Whoever changes one wakes the loops;
//! each compares [`Registry::version`] with what it saw last, in every tick, and brings
//! [`CallSteps::woken`] to the calls that subscribed to [`Topic::Health`]. A watching call looks up
//! its status then. It keeps the last one it sent and nothing else, so a caller that does not read
//! costs no more than one that does.

use crate::actions::{Responses, SendRoom, Topic, Wakeups};
use crate::call::{CallHead, CallSteps, PlanReads, Shared};
use crate::limits::HEALTH_SERVICE_NAME_BYTES_MAX;
use crate::method::Method;
use crate::serving::{Registry, Serving};
use crate::status::{self, Code, Status};
use crate::waiting::WaitingPlace;
use api::health::{HealthCheckRequest, HealthCheckResponse, HealthListResponse, StatusEntry};
use protobuf::writer;

/// A call of the health service.
pub enum HealthCall {
    /// A call whose request has not come yet, and one that is over.
    Begun(Method),
    /// A caller that watches.
    Watching {
        /// Index in the registry; `None` for a service that is not known.
        position: Option<usize>,
        /// What the caller was told last.
        sent: Serving,
        /// Held as long as the call lives.
        _place: Box<WaitingPlace>,
    },
}

impl HealthCall {
    /// Begins a call.
    pub fn started(
        method: Method,
        _head: &CallHead<'_>,
        _shared: &Shared,
        _actions: &mut impl Sized,
    ) -> HealthCall {
        HealthCall::Begun(method)
    }

    fn watch(
        &mut self,
        service: &[u8],
        shared: &Shared,
        actions: &mut (impl Responses + SendRoom + Wakeups),
    ) {
        let place = match shared.waiting.enter(actions.caller()) {
            Ok(place) => place,
            Err(status) => return actions.finish(status),
        };
        actions.subscribe(Topic::Health);
        let sent = shared.health.serving(service);
        actions.message(|out| encode_status(out, sent));
        *self = HealthCall::Watching {
            position: shared.health.position(service),
            sent,
            _place: Box::new(place),
        };
        self.tell(shared, actions);
    }

    /// Tells a watching caller what has changed since it was told last.
    fn tell(&mut self, shared: &Shared, actions: &mut (impl Responses + SendRoom)) {
        let HealthCall::Watching { position, sent, .. } = self else {
            return;
        };
        let now = match *position {
            Some(position) => shared.health.serving_at(position),
            None => Serving::Unknown,
        };
        let is_stopping = shared.health.is_stopping();
        // The last word goes out in any case: it is a few bytes, once.
        if now != *sent && (is_stopping || actions.can_send()) {
            *sent = now;
            actions.message(|out| encode_status(out, now));
        }
        if is_stopping {
            // A caller that watches never ends by itself, and would hold up the end of the server.
            actions.finish(Status::new(Code::Unavailable, "the server is stopping"));
        }
    }
}

impl PlanReads for HealthCall {}

impl<A: Responses + SendRoom + Wakeups> CallSteps<A> for HealthCall {
    fn message(&mut self, bytes: &[u8], _last: bool, shared: &Shared, actions: &mut A) {
        let &mut HealthCall::Begun(method) = self else {
            return actions.finish(status::second_request(Method::HealthWatch.path()));
        };
        if method == Method::HealthList {
            return actions.respond(|out| encode_list(out, &shared.health));
        }
        let service = match decode_service(bytes) {
            Ok(service) => service,
            Err(status) => return actions.finish(status),
        };
        if method == Method::HealthWatch {
            return self.watch(service, shared, actions);
        }
        match shared.health.serving(service) {
            Serving::Unknown => actions.finish(no_such_service(service)),
            serving => actions.respond(|out| encode_status(out, serving)),
        }
    }

    fn half_closed(&mut self, _shared: &Shared, actions: &mut A) {
        if let HealthCall::Begun(method) = self {
            actions.finish(status::no_request(method.path()));
        }
    }

    fn writable(&mut self, shared: &Shared, actions: &mut A) {
        self.tell(shared, actions);
    }

    fn woken(&mut self, shared: &Shared, actions: &mut A) {
        self.tell(shared, actions);
    }
}

/// `HealthCheckRequest`: the name of the service.
fn decode_service(bytes: &[u8]) -> Result<&[u8], Status> {
    let request = HealthCheckRequest::decode(bytes);
    let service = request
        .map_err(|error| Status::invalid_argument(format!("HealthCheckRequest: {error}")))?
        .service;
    if service.len() > HEALTH_SERVICE_NAME_BYTES_MAX {
        return Err(Status::invalid_argument(format!(
            "HealthCheckRequest.service has {} bytes; a name has at most \
             {HEALTH_SERVICE_NAME_BYTES_MAX}",
            service.len()
        )));
    }
    Ok(service.as_bytes())
}

fn response(serving: Serving) -> HealthCheckResponse {
    HealthCheckResponse {
        status: serving as i32,
    }
}

/// `HealthCheckResponse`
fn encode_status(out: &mut Vec<u8>, serving: Serving) {
    response(serving).encode(out);
}

/// `HealthListResponse`: a map is a repeated entry of key (1) and value (2).
fn encode_list(out: &mut Vec<u8>, registry: &Registry) {
    for (name, serving) in registry.all() {
        let entry = StatusEntry {
            key: name,
            value: Some(response(serving)),
        };
        let number = HealthListResponse::NUMBERS.statuses;
        writer::message(out, number, |out| entry.encode(out));
    }
}

#[cold]
fn no_such_service(service: &[u8]) -> Status {
    let service = String::from_utf8_lossy(service);
    Status::not_found(format!(
        "there is no service {service:?} on this server; the method List names those there are"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Sent, shared};
    use protobuf::Reader;

    fn request(service: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        writer::bytes(&mut bytes, 1, service.as_bytes());
        bytes
    }

    fn status_message(serving: Serving) -> Sent {
        Sent::Message(vec![0x08, serving as u8])
    }

    fn finished(fake: &mut Fake) -> Status {
        fake.take_status()
            .expect("the call has ended with a status")
    }

    #[test]
    fn check_answers_for_the_server_and_for_each_service() {
        let shared = shared();
        for service in ["", "pelton.v1.KeyValue", "grpc.health.v1.Health"] {
            let mut fake = Fake::new(Method::HealthCheck, &shared);
            fake.message(&request(service), true, &shared);
            assert_eq!(
                fake.take_sent(),
                [Sent::Response(vec![0x08, 1])],
                "{service:?}"
            );
        }
        assert!(shared.health.set("pelton.v1.KeyValue", false));
        let mut fake = Fake::new(Method::HealthCheck, &shared);
        fake.message(&request("pelton.v1.KeyValue"), true, &shared);
        assert_eq!(fake.take_sent(), [Sent::Response(vec![0x08, 2])]);
        assert!(!shared.health.set("pelton.v1.Nothing", false));
    }

    #[test]
    fn check_of_what_is_not_there() {
        let shared = shared();
        let mut fake = Fake::new(Method::HealthCheck, &shared);
        fake.message(&request("pelton.v1.Nothing"), true, &shared);
        let status = finished(&mut fake);
        assert_eq!(status.code(), Code::NotFound);
        assert!(status.message().contains("pelton.v1.Nothing"));
    }

    #[test]
    fn requests_that_are_wrong() {
        let shared = shared();
        let cases: [(&[u8], Code); 3] = [
            (&[0x0a, 0x05, b'x'], Code::InvalidArgument),
            (&[0x0a, 0x01, 0xff], Code::InvalidArgument),
            (&[0x08, 0x01], Code::InvalidArgument),
        ];
        for (bytes, code) in cases {
            for method in [Method::HealthCheck, Method::HealthWatch] {
                let mut fake = Fake::new(method, &shared);
                fake.message(bytes, true, &shared);
                assert_eq!(finished(&mut fake).code(), code, "{bytes:?}");
            }
        }
        for (bytes, code) in [
            (HEALTH_SERVICE_NAME_BYTES_MAX, Code::NotFound),
            (HEALTH_SERVICE_NAME_BYTES_MAX + 1, Code::InvalidArgument),
        ] {
            let mut fake = Fake::new(Method::HealthCheck, &shared);
            fake.message(&request(&"x".repeat(bytes)), true, &shared);
            assert_eq!(finished(&mut fake).code(), code, "{bytes}");
        }
        let mut fake = Fake::new(Method::HealthCheck, &shared);
        fake.half_closed(&shared);
        assert_eq!(finished(&mut fake).code(), Code::Unimplemented);
    }

    #[test]
    fn list_names_every_service() {
        let shared = shared();
        shared.health.set("pelton.v1.Echo", false);
        let mut fake = Fake::new(Method::HealthList, &shared);
        fake.message(&[], true, &shared);
        let sent = fake.take_sent();
        let [Sent::Response(bytes)] = &sent[..] else {
            panic!("one answer, not {sent:?}");
        };
        let mut statuses = Vec::new();
        Reader::new(bytes)
            .for_each(|field, entry| {
                assert_eq!(field, 1);
                let (mut name, mut status) = (String::new(), 0);
                Reader::new(entry.bytes()?)
                    .for_each(|field, value| {
                        match field {
                            1 => name = value.string()?.to_owned(),
                            _ => status = value.bytes()?[1],
                        }
                        Ok(())
                    })
                    .expect("an entry is a message");
                statuses.push((name, status));
                Ok(())
            })
            .expect("the answer is a message");
        let expected: Vec<(String, u8)> = std::iter::once("")
            .chain(crate::method::served(true))
            .map(|name| {
                (
                    name.to_owned(),
                    if name == "pelton.v1.Echo" { 2 } else { 1 },
                )
            })
            .collect();
        assert_eq!(statuses, expected);
    }

    #[test]
    fn watch_tells_the_status_at_once_and_every_change() {
        let shared = shared();
        let mut fake = Fake::new(Method::HealthWatch, &shared);
        fake.message(&request("pelton.v1.KeyValue"), true, &shared);
        assert_eq!(fake.actions.subscribed, Some(Topic::Health));
        assert_eq!(fake.take_sent(), [status_message(Serving::Yes)]);
        // Something else changed.
        let version = shared.health.version();
        shared.health.set("pelton.v1.Echo", false);
        assert!(shared.health.version() > version);
        fake.woken(&shared);
        assert_eq!(fake.take_sent(), []);
        shared.health.set("pelton.v1.KeyValue", false);
        fake.woken(&shared);
        assert_eq!(fake.take_sent(), [status_message(Serving::No)]);
        shared.health.set("pelton.v1.KeyValue", true);
        fake.woken(&shared);
        assert_eq!(fake.take_sent(), [status_message(Serving::Yes)]);
        assert!(!fake.actions.is_over);
    }

    #[test]
    fn watch_of_an_unknown_service_stays() {
        let shared = shared();
        let mut fake = Fake::new(Method::HealthWatch, &shared);
        fake.message(&request("pelton.v1.Nothing"), true, &shared);
        assert_eq!(fake.take_sent(), [status_message(Serving::Unknown)]);
        shared.health.set("", false);
        fake.woken(&shared);
        assert_eq!(fake.take_sent(), []);
        assert!(!fake.actions.is_over);
    }

    #[test]
    fn a_slow_watcher_gets_the_latest_status() {
        let shared = shared();
        let mut fake = Fake::new(Method::HealthWatch, &shared);
        fake.message(&request(""), true, &shared);
        fake.take_sent();
        fake.actions.can_send = false;
        for serving in [false, true, false] {
            shared.health.set("", serving);
            fake.woken(&shared);
        }
        assert_eq!(fake.take_sent(), []);
        fake.actions.can_send = true;
        fake.writable(&shared);
        assert_eq!(fake.take_sent(), [status_message(Serving::No)]);
        // There and back while it could not be told: nothing to tell.
        fake.actions.can_send = false;
        shared.health.set("", true);
        fake.woken(&shared);
        shared.health.set("", false);
        fake.woken(&shared);
        fake.actions.can_send = true;
        fake.writable(&shared);
        assert_eq!(fake.take_sent(), []);
    }

    #[test]
    fn a_stopping_server_serves_nothing_and_ends_watchers() {
        let shared = shared();
        let mut fake = Fake::new(Method::HealthWatch, &shared);
        fake.message(&request("pelton.v1.KeyValue"), true, &shared);
        fake.take_sent();
        shared.health.stop();
        shared.health.set("pelton.v1.KeyValue", true);
        // Even if the caller does not read.
        fake.actions.can_send = false;
        fake.woken(&shared);
        let sent = fake.take_sent();
        assert_eq!(sent[0], status_message(Serving::No));
        assert!(matches!(&sent[1], Sent::Status(status) if status.code() == Code::Unavailable));

        let mut fake = Fake::new(Method::HealthCheck, &shared);
        fake.message(&request("pelton.v1.KeyValue"), true, &shared);
        assert_eq!(fake.take_sent(), [Sent::Response(vec![0x08, 2])]);

        let mut fake = Fake::new(Method::HealthWatch, &shared);
        fake.message(&request(""), true, &shared);
        assert_eq!(fake.take_sent().len(), 2, "the status, and the end");
    }

    #[test]
    fn watchers_are_limited() {
        let mut shared = shared();
        shared.waiting = crate::waiting::WaitingCalls::new(10);
        let watch = || {
            let mut fake = Fake::new(Method::HealthWatch, &shared);
            fake.message(&request(""), true, &shared);
            fake
        };
        let mut first: Vec<_> = (0..crate::limits::WAITING_CALLS_IN_ANY_CASE)
            .map(|_| watch())
            .collect();
        assert_eq!(finished(&mut watch()).code(), Code::ResourceExhausted);
        first.pop();
        assert!(!watch().actions.is_over, "a place was given back");
        assert_eq!(shared.waiting.count(), first.len());
    }

    #[test]
    fn watch_takes_one_request() {
        let shared = shared();
        let mut fake = Fake::new(Method::HealthWatch, &shared);
        fake.message(&request(""), false, &shared);
        fake.take_sent();
        fake.message(&request(""), true, &shared);
        assert_eq!(finished(&mut fake).code(), Code::Unimplemented);
    }
}
