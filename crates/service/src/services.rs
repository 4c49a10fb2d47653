//! The table of services: which state machine serves the methods of which.

use store::blob::BlobNews;
use store::tree::ReadPlan;
use store::{
    CommitOutcome, LogReadError, LogReading, NextCommits, ReadView, ReplicaPiece, ReplicaReading,
};

use crate::actions::Actions;
use crate::admin::AdminCall;
use crate::blob::BlobCall;
use crate::call::{CallHead, CallSteps, PlanReads, ServerInfo, Shared};
use crate::compat::brpc_echo::BrpcEchoCall;
use crate::compat::gupload::GuploadCall;
use crate::compat::kvstore::KvstoreCall;
use crate::compat::srpc_benchmark::SrpcBenchmarkCall;
use crate::compat::tkrzw::TkrzwCall;
use crate::compat::ydb_ping::YdbPingCall;
use crate::delayed_refusal::DelayedRefusal;
use crate::echo::EchoCall;
use crate::health::HealthCall;
use crate::http::HttpCall;
use crate::interop::InteropCall;
use crate::keyvalue::KeyValueCall;
use crate::method::{Method, Service, served_in_order};
use crate::reflection::ReflectionCall;
use crate::replication::ReplicationCall;
use crate::settings::ServiceSettings;
use crate::status::Status;
use crate::task::TaskNews;

pub use crate::keyvalue::{database_gone, no_reader, not_read, not_read_elsewhere, reads_wait};

/// Makes [`ServiceCall`] of the table, and brings its steps to the state machine that it holds.
macro_rules! services {
    ($($call:ident($state:ty): $($service:ident)|+;)*) => {
        /// A call of any method. Small, as a server holds many: what needs more than a few words is
        /// boxed.
        pub enum ServiceCall {
            $(
                #[doc = concat!("Of ", stringify!($($service),+), ".")]
                $call($state),
            )*
            /// Refused, and its refusal is delayed.
            Refused(DelayedRefusal),
            /// Ended while it was started.
            Over,
        }

        impl ServiceCall {
            /// Begins a call of `method`.
            pub fn started(
                method: Method,
                head: &CallHead<'_>,
                shared: &Shared,
                actions: &mut impl Actions,
            ) -> ServiceCall {
                if !is_served(method, shared) {
                    actions.finish(not_served(method));
                    return ServiceCall::Over;
                }
                if method.is_for_leader()
                    && let Some(refusal) = shared.write_refusal()
                {
                    actions.finish(refusal);
                    return ServiceCall::Over;
                }
                match method.service() {
                    $($(Service::$service)|+ => {
                        ServiceCall::$call(<$state>::started(method, head, shared, actions))
                    })*
                }
            }
        }

        /// Brings a step to the state of whatever kind of call it is.
        macro_rules! step {
            ($one:expr, $of:ident => $step:expr) => {
                match $one {
                    $(ServiceCall::$call($of) => $step,)*
                    ServiceCall::Refused($of) => $step,
                    ServiceCall::Over => {}
                }
            };
        }
    };
}

services! {
    KeyValue(KeyValueCall): KeyValue;
    Health(HealthCall): Health;
    Reflection(ReflectionCall): ReflectionV1 | ReflectionV1Alpha;
    Admin(AdminCall): Admin;
    Replication(ReplicationCall): Replication;
    Blob(BlobCall): Blob;
    Echo(EchoCall): Echo;
    Interop(InteropCall): Interop;
    Kvstore(KvstoreCall): Kvstore;
    Gupload(GuploadCall): Gupload | HttpGupload;
    YdbPing(YdbPingCall): YdbPing;
    BrpcEcho(BrpcEchoCall): BrpcEcho;
    SrpcBenchmark(SrpcBenchmarkCall): SrpcBenchmark;
    Tkrzw(TkrzwCall): Tkrzw | TkrzwBefore;
    Http(HttpCall): HttpBlob;
}

const _: () = assert!(
    size_of::<ServiceCall>() <= 64,
    "a server holds many calls: box what is large"
);

/// Whether a method is there, and switched on.
#[inline]
fn is_served(method: Method, shared: &Shared) -> bool {
    method.is_served(shared.settings.interop)
}

#[cold]
fn not_served(method: Method) -> Status {
    let path = method.path();
    Status::unimplemented(format!("{path} is served only with the flag --interop"))
}

impl PlanReads for ServiceCall {
    fn plan_reads(&self, kept: &[u8], plan: &mut ReadPlan) {
        step!(self, state => state.plan_reads(kept, plan));
    }

    fn reads_in_order(&self) -> bool {
        match self {
            ServiceCall::KeyValue(state) => state.reads_in_order(),
            ServiceCall::Tkrzw(state) => state.reads_in_order(),
            _ => false,
        }
    }
}

impl<A: Actions> CallSteps<A> for ServiceCall {
    #[inline]
    fn message(&mut self, bytes: &[u8], last: bool, shared: &Shared, actions: &mut A) {
        step!(self, state => state.message(bytes, last, shared, actions));
    }

    fn part(&mut self, bytes: &[u8], left: usize, last: bool, shared: &Shared, actions: &mut A) {
        step!(self, state => state.part(bytes, left, last, shared, actions));
    }

    fn half_closed(&mut self, shared: &Shared, actions: &mut A) {
        step!(self, state => state.half_closed(shared, actions));
    }

    #[inline]
    fn read(&mut self, view: &ReadView<'_>, kept: &[u8], shared: &Shared, actions: &mut A) {
        step!(self, state => state.read(view, kept, shared, actions));
    }

    #[inline]
    fn committed(&mut self, outcome: &CommitOutcome<'_>, shared: &Shared, actions: &mut A) {
        step!(self, state => state.committed(outcome, shared, actions));
    }

    fn task(&mut self, news: &TaskNews<'_>, shared: &Shared, actions: &mut A) {
        step!(self, state => state.task(news, shared, actions));
    }

    fn blob(&mut self, news: BlobNews, shared: &Shared, actions: &mut A) {
        step!(self, state => state.blob(news, shared, actions));
    }

    fn writable(&mut self, shared: &Shared, actions: &mut A) {
        step!(self, state => state.writable(shared, actions));
    }

    fn log_read(
        &mut self,
        reading: LogReading,
        read: Result<NextCommits, LogReadError>,
        shared: &Shared,
        actions: &mut A,
    ) {
        step!(self, state => state.log_read(reading, read, shared, actions));
    }

    fn replica_read(
        &mut self,
        reading: ReplicaReading,
        read: Result<ReplicaPiece, LogReadError>,
        shared: &Shared,
        actions: &mut A,
    ) {
        step!(self, state => state.replica_read(reading, read, shared, actions));
    }

    fn woken(&mut self, shared: &Shared, actions: &mut A) {
        step!(self, state => state.woken(shared, actions));
    }
}

/// Returns what `GET /` says: name and version, and what is served.
pub fn greeting(server: &ServerInfo, settings: &ServiceSettings) -> String {
    let ServerInfo { name, version } = server;
    let services: String = (served_in_order(settings.interop).iter())
        .map(|service| format!("  {service}\n"))
        .collect();
    format!(
        "{name} {version}: a key-value and blob server over gRPC.\n\
         This port serves over HTTP/2, with TLS or without:\n\
         {services}\
         and their unary methods over baidu_std and SRPC. Try: pelton status\n\
         Blobs are at /blob/NAME, for clients that begin with HTTP/2: curl \
         --http2-prior-knowledge\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::served;

    #[test]
    fn the_greeting_names_each_service_that_is_served() {
        let server = ServerInfo {
            name: "pelton",
            version: "1",
        };
        for interop in [false, true] {
            let settings = ServiceSettings {
                interop,
                ..ServiceSettings::default()
            };
            let text = greeting(&server, &settings);
            let named = text.lines().filter_map(|line| line.strip_prefix("  "));
            let mut named: Vec<&str> = named.collect();
            assert_eq!(named[0], "pelton.v1.KeyValue");
            named.sort_unstable();
            let mut served: Vec<&str> = served(interop).collect();
            served.sort_unstable();
            assert_eq!(named, served);
        }
    }
}
