//! One call that watches.

use api::agent::AgentWatchRequest;
use wire::grpc::{Code, Status};
use wire::{Connection, StreamKey};

use super::activity_watch::{ActivityWatch, ReportError};
use super::agent_subject::{AgentSubject, SubjectError, UnreadableSystem};
use super::cpu_share::{CpuClock, CpuShare};
use super::limits::{
    AGENT_INTERVAL_LEAST_MS, AGENT_INTERVAL_MOST_MS, AGENT_INTERVAL_MS, AGENT_LONGEST,
    AGENT_LOOK_PERCENT, AGENT_REPORT_DELAY_MAX, AGENT_REPORT_PERCENT,
};
use super::socket_look::SocketLook;
use super::subject_search::SubjectSearch;
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
    /// What looks and reports of this call take of a CPU.
    looks: CpuShare,
    reports: CpuShare,
}

/// What the calls of an agent have together.
pub(super) struct SharedLooks {
    pub(super) clock: CpuClock,
    pub(super) search: SubjectSearch,
    pub(super) sockets: SocketLook,
    /// Calls that watch.
    pub(super) watches: usize,
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
        shared: &mut SharedLooks,
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
        let search = || {
            subject
                .processes(folders)
                .map_err(|error| not_begun(&error))
        };
        let processes = shared.search.processes(&shared.clock, now_ns, search)?;
        let watch = ActivityWatch::begin(folders, (subject, processes), now_ns);
        let watch = watch.map_err(|error| not_begun(&error))?;
        let interval_ns = u64::from(interval_ms) * 1_000_000;
        self.reports = Some(ReportSchedule {
            watch,
            interval_ns,
            is_cumulative: request.cumulative,
            next_look_ns: now_ns.saturating_add(LOOK_EVERY.as_nanos() as u64),
            next_report_ns: now_ns.saturating_add(interval_ns),
            looks: CpuShare::new(AGENT_LOOK_PERCENT),
            reports: CpuShare::new(AGENT_REPORT_PERCENT),
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
        (connection, out): (&mut Connection, &mut Vec<u8>),
        shared: &mut SharedLooks,
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
        reports.look(shared, now_ns);
        if now_ns < reports.next_report_ns {
            return None;
        }
        // To a caller who does not read, reports are left out.
        if !connection.can_send(self.stream) {
            reports.schedule_next(now_ns, now_ns);
            return None;
        }
        let mut message = Vec::new();
        if let Err(error) = reports.report(shared, now_ns, &mut message) {
            return Some(ended(&error));
        }
        connection.send_message(self.stream, out, |out| out.extend_from_slice(&message));
        None
    }
}

impl ReportSchedule {
    /// Looks what the threads do now, if that is due.
    fn look(&mut self, shared: &SharedLooks, now_ns: u64) {
        if now_ns < self.next_look_ns {
            return;
        }
        let sharers = (now_ns, shared.watches);
        self.looks
            .spend(&shared.clock, sharers, || self.watch.look());
        let next_ns = now_ns.saturating_add(LOOK_EVERY.as_nanos() as u64);
        self.next_look_ns = next_ns.max(self.looks.next_ns());
    }

    /// Appends a report to `out`.
    fn report(
        &mut self,
        shared: &mut SharedLooks,
        now_ns: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), ReportError> {
        let sockets = (&mut shared.sockets, &shared.clock);
        let buffers = self.watch.buffers(sockets, now_ns);
        let sharers = (now_ns, shared.watches);
        let reported = self.reports.spend(&shared.clock, sharers, || {
            let reported = self.watch.report(buffers, now_ns, out);
            if !self.is_cumulative {
                self.watch.restart(now_ns);
            }
            reported
        });
        let latest_ns = now_ns.saturating_add(AGENT_REPORT_DELAY_MAX.as_nanos() as u64);
        self.schedule_next(now_ns, self.reports.next_ns().min(latest_ns));
        reported
    }

    /// Has the next report come after its interval, and not before `least_ns`. One that comes late
    /// is not followed by others in a hurry.
    fn schedule_next(&mut self, now_ns: u64, least_ns: u64) {
        let next_ns = self.next_report_ns.saturating_add(self.interval_ns);
        self.next_report_ns = next_ns.max(now_ns).max(least_ns);
    }
}

/// The status of a call that cannot begin to watch.
fn not_begun(error: &SubjectError) -> Status {
    match error {
        SubjectError::Unreadable(unreadable) => unreadable_status(unreadable),
        error => Status::new(Code::Unavailable, error.to_string()),
    }
}

/// The status of a call that cannot go on.
fn ended(error: &ReportError) -> Status {
    match error {
        ReportError::Unreadable(unreadable) => unreadable_status(unreadable),
        ReportError::Ended => Status::new(Code::Unavailable, error.to_string()),
    }
}

fn unreadable_status(unreadable: &UnreadableSystem) -> Status {
    let code = match unreadable.is_shortage() {
        true => Code::ResourceExhausted,
        false => Code::Unavailable,
    };
    Status::new(code, unreadable.to_string())
}
