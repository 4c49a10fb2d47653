//! What an agent does at most, and what is read of one.

use std::time::Duration;

use crate::diagnose::limits::DIAGNOSE_TIME_MAX;

/// Connections to an agent: as many as can watch, and some that are refused in words.
pub const AGENT_CONNECTIONS: usize = 16;

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

/// The highest number that is taken for one of CPUs.
pub const AGENT_CPUS_MAX: u32 = 1 << 16;

/// Interval of the reports that a diagnosis asks for, in milliseconds: a tenth of an experiment.
pub const AGENT_DIAGNOSIS_INTERVAL_MS: u32 = 100;

/// How long an agent may take to report until it counts as gone.
pub const AGENT_SILENCE: Duration = Duration::from_secs(3);

/// Bytes of a table of sockets that are read for a report: some thousand sockets. Of a longer one
/// the sizes of buffers are not known.
pub const AGENT_SOCKET_TABLE_BYTES: u64 = 1 << 20;
