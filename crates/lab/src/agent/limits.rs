//! What an agent does at most, and what is read of one.

use std::time::Duration;

use crate::diagnose::limits::DIAGNOSE_TIME_MAX;

/// Connections to an agent whose callers have shown that they may watch: as many as can watch, and
/// some that are refused in words. One more closes the one without a call for the longest time.
pub const AGENT_CONNECTIONS: usize = 16;

/// Connections to an agent on which no such call has come yet. One more closes, of the address with
/// most, the oldest: whoever has no token keeps nobody out who has.
pub const AGENT_NEWCOMERS: usize = 256;

/// How long a connection may be open without a call with the agent's token, or without any call if
/// it has none: a client sends one at once.
pub const AGENT_PROOF_TIME: Duration = Duration::from_secs(5);

/// Sockets of all callers together, those of TLS handshakes that are not finished included. So many
/// more than are kept that a burst of them finds room, and that who is closed for others is chosen:
/// above this limit newcomers are closed unheard.
pub const AGENT_SOCKETS: usize = 1_024;

/// File descriptors that callers may not take, where the agent may have few: it reads `/proc`.
pub const AGENT_OWN_DESCRIPTORS: usize = 32;

/// Calls that watch at a time: each of them looks at all threads of the server again and again.
pub const AGENT_WATCHES: usize = 4;

/// Streams that may be open on one connection: more than all calls together would be refused.
pub const AGENT_STREAMS: u32 = 8;

/// Bytes of a request, which has a few: one that is longer is none.
pub const AGENT_REQUEST_BYTES: usize = 1 << 10;

/// The shortest interval of reports, in milliseconds: a report reads the files of all threads.
pub const AGENT_INTERVAL_LEAST_MS: u32 = 50;

/// The longest interval of reports, in milliseconds.
pub const AGENT_INTERVAL_MOST_MS: u32 = 60_000;

/// The interval of a call that asks for none, in milliseconds.
pub const AGENT_INTERVAL_MS: u32 = 1_000;

/// How long a call may watch: as long as the longest diagnosis.
pub const AGENT_LONGEST: Duration = DIAGNOSE_TIME_MAX;

/// Threads in a report: the busiest ones, as nobody reads more.
pub const AGENT_THREADS: usize = 16;

/// Bytes of reports that may wait for a caller who does not read them; above that, reports are left
/// out.
pub const AGENT_UNSENT_BYTES: usize = 64 << 10;

/// Bytes of a report that are taken from an agent: 16 threads with names of 15 characters take less
/// than 1 000.
pub const AGENT_REPORT_BYTES: usize = 16 << 10;

/// Characters that are kept of a thread's name: the kernel's have 15.
pub const AGENT_NAME_CHARACTERS: usize = 64;

/// Characters that are kept of what an agent says why it does not report.
pub const AGENT_REASON_CHARACTERS: usize = 200;

/// The highest number that is taken for one of CPUs.
pub const AGENT_CPUS_MAX: u32 = 1 << 16;

/// How often threads may move on one CPU each second, as far as an agent is believed: a switch
/// takes a microsecond.
pub const AGENT_MIGRATIONS_OF_CPU: u32 = 1_000_000;

/// By which part a figure may exceed what is possible, and is believed: figures and the time that
/// they are about are not read at the same moment.
pub const AGENT_TOLERANCE: f64 = 0.1;

/// Interval of the reports that a diagnosis asks for, in milliseconds: a tenth of an experiment.
pub const AGENT_DIAGNOSIS_INTERVAL_MS: u32 = 100;

/// How long an agent may take to report until it counts as gone.
pub const AGENT_SILENCE: Duration = Duration::from_secs(3);

/// What looks at the threads may take of one CPU, in percent, all calls together; and looks at the
/// sockets of the server as much again. Who watches a busy server must not make it slower.
pub const AGENT_LOOK_PERCENT: u32 = 2;

/// What reports may take of one CPU, in percent: with those of many threads the next one comes
/// later than was asked for.
pub const AGENT_REPORT_PERCENT: u32 = 5;

/// By how much a report comes later at most: a caller waits no longer than `AGENT_SILENCE`.
pub const AGENT_REPORT_DELAY_MAX: Duration = Duration::from_secs(1);

/// Connections to the server whose buffers are counted: some hundredths of a second. Of more the
/// sizes of buffers are not known.
pub const AGENT_SOCKETS_COUNTED: usize = 1 << 17;

/// Bytes of a table of all sockets that are read where the kernel does not choose those of a port:
/// some thousand sockets. Of a longer one the sizes of buffers are not known.
pub const AGENT_SOCKET_TABLE_BYTES: u64 = 1 << 20;
