//! The tap: a relay between any client and any server, which shows what each of them waits for.
//!
//! [`Tap`] forwards bytes as they are. What it reads from the client, and what it writes to the
//! client, it follows (`watch`): HTTP/2 with or without TLS, and baidu_std. So it sees a call as
//! its client does, less the way between the two. The account of each connection
//! ([`ConnectionFigures`]) divides its time by who could have moved ([`TimeUse`]); the sum of all
//! is a [`TapSummary`], from which [`judge`] says in one sentence where the time goes.

mod call;
mod compressed;
mod conditions;
mod direction;
mod framed;
mod frames;
mod http2;
mod ledger;
pub mod limits;
mod relay;
mod relay_queue;
mod relay_socket;
mod relayed;
mod report;
mod stream_limit;
mod summary;
mod target;
mod tcp_of_side;
mod time_use;
mod timeline;
mod totals;
mod verdict;
mod watch;

#[cfg(test)]
pub(crate) mod tests;

pub use call::{CallEnd, TappedCall};
pub use compressed::CompressedMessages;
pub use conditions::Conditions;
pub use direction::TapDirection;
pub use frames::Unreadable;
pub use ledger::ConnectionFigures;
pub use relay::{Tap, TapPlan};
pub use report::TapReport;
pub use summary::{ConnectionSummary, TapSummary};
pub use target::{TapError, TapTarget};
pub use tcp_of_side::TcpOfSide;
pub use time_use::{TimeTable, TimeUse};
pub use totals::{MethodTotals, OPEN_CLASSES, OpenClass, TapTotals};
pub use verdict::{Bottleneck, TapVerdict, judge};
pub(crate) use verdict::{
    LONG_WAY_NS, MARGIN, NAMED_SHARE, TAP_BUSY, TAP_RATHER_BUSY, WAY_SHARE, time,
};
