//! One call that watches.

use api::agent::AgentWatchRequest;
use wire::grpc::{Code, Status};
use wire::{Connection, StreamKey};

use super::activity_watch::ActivityWatch;
use super::agent_subject::AgentSubject;
use super::limits::{
    AGENT_INTERVAL_LEAST_MS, AGENT_INTERVAL_MOST_MS, AGENT_INTERVAL_MS, AGENT_LONGEST,
};
use crate::diagnose::SystemFolders;
use crate::diagnose::limits::LOOK_EVERY;

/// One call that watches.
#[derive(Debug)]
pub(super) struct WatchCall {
    stream: StreamKey,
    /// When it ends by time, and whether the caller has asked for that.
    end_ns: u64,
    has_deadline: bool,
    /// `None`: its request has not come.
    reports: Option<ReportSchedule>,
}

/// What it reports, and when.
#[derive(Debug)]
struct ReportSchedule {
    watch: ActivityWatch,
    interval_ns: u64,
    is_cumulative: bool,
    next_look_ns: u64,
    next_report_ns: u64,
}

impl WatchCall {
    /// A call that has begun; `timeout_ns`: how long its caller waits.
    pub(super) fn new(stream: StreamKey, timeout_ns: Option<u64>, now_ns: u64) -> WatchCall {
        let longest_ns = AGENT_LONGEST.as_nanos() as u64;
        let time_ns = timeout_ns.unwrap_or(u64::MAX).min(longest_ns);
        WatchCall {
            stream,
            end_ns: now_ns.saturating_add(time_ns),
            has_deadline: time_ns < longest_ns,
            reports: None,
        }
    }

    pub(super) fn stream(&self) -> StreamKey {
        self.stream
    }

    /// Whether its request has come.
    pub(super) fn is_watching(&self) -> bool {
        self.reports.is_some()
    }

    /// Takes the request, and begins to watch.
    ///
    /// # Errors
    /// With the status with which the call ends.
    pub(super) fn begin(
        &mut self,
        request: &[u8],
        (folders, subject): (&SystemFolders, AgentSubject),
        now_ns: u64,
    ) -> Result<(), Status> {
        let request = AgentWatchRequest::decode(request);
        let request = request.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let interval_ms = match request.interval_ms {
            0 => AGENT_INTERVAL_MS,
            asked => asked,
        };
        if !(AGENT_INTERVAL_LEAST_MS..=AGENT_INTERVAL_MOST_MS).contains(&interval_ms) {
            return Err(Status::invalid_argument(format!(
                "interval_ms: {interval_ms} is out of its range; write \
                 {AGENT_INTERVAL_LEAST_MS} to {AGENT_INTERVAL_MOST_MS}"
            )));
        }
        let watch = ActivityWatch::begin(folders, subject, now_ns).ok_or_else(|| {
            Status::new(
                Code::Unavailable,
                format!(
                    "{} is not there, or may not be looked at: its own user may, and root",
                    subject.words()
                ),
            )
        })?;
        let interval_ns = u64::from(interval_ms) * 1_000_000;
        self.reports = Some(ReportSchedule {
            watch,
            interval_ns,
            is_cumulative: request.cumulative,
            next_look_ns: now_ns.saturating_add(LOOK_EVERY.as_nanos() as u64),
            next_report_ns: now_ns.saturating_add(interval_ns),
        });
        Ok(())
    }

    /// When [`WatchCall::pass_time`] is to be called.
    pub(super) fn next_deadline_ns(&self) -> u64 {
        let reports = self.reports.as_ref();
        let due_ns = reports.map(|reports| reports.next_look_ns.min(reports.next_report_ns));
        due_ns.unwrap_or(u64::MAX).min(self.end_ns)
    }

    /// Does what is due by now. Returns the status with which the call ends, if it does.
    pub(super) fn pass_time(
        &mut self,
        connection: &mut Connection,
        out: &mut Vec<u8>,
        now_ns: u64,
    ) -> Option<Status> {
        if now_ns >= self.end_ns {
            return Some(match self.has_deadline {
                true => Status::new(
                    Code::DeadlineExceeded,
                    "the deadline of the call has passed",
                ),
                false => Status::OK,
            });
        }
        let reports = self.reports.as_mut()?;
        if now_ns >= reports.next_look_ns {
            reports.watch.look();
            reports.next_look_ns = now_ns.saturating_add(LOOK_EVERY.as_nanos() as u64);
        }
        if now_ns < reports.next_report_ns {
            return None;
        }
        // One that comes late is not followed by others in a hurry.
        let next_ns = reports.next_report_ns.saturating_add(reports.interval_ns);
        reports.next_report_ns = next_ns.max(now_ns);
        // To a caller who does not read, reports are left out.
        if !connection.can_send(self.stream) {
            return None;
        }
        let mut message = Vec::new();
        if !reports.watch.report(now_ns, &mut message) {
            let text = "the process that is watched has ended";
            return Some(Status::new(Code::Unavailable, text));
        }
        connection.send_message(self.stream, out, |out| out.extend_from_slice(&message));
        if !reports.is_cumulative {
            reports.watch.restart(now_ns);
        }
        None
    }
}
