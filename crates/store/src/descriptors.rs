//! File descriptors: how many each part of a server may have open, so that none takes those of
//! another, least of all those of the log.

use rustix::process::{Resource, getrlimit};

use crate::blob::limits::{OPEN_CONTENTS, OPEN_UPLOADS};
use crate::limits::{
    DESCRIPTORS_LEAST, DESCRIPTORS_PER_THREAD, DESCRIPTORS_RESERVED, DESCRIPTORS_RESERVED_MIN,
    DESCRIPTORS_TABLES_SHARE,
};
use crate::tree::TreeConfig;
use crate::tree::limits::OPEN_FILES;

pub use crate::descriptor_budget::{DescriptorBudget, DescriptorPermit};

/// What a process may open, shared out: the log, its folder, listeners, standard streams and
/// databases on disk have a reserve, of which tables that are kept open take a part; of the rest
/// open uploads and open blobs have a quarter each, as far as they need so many, and connections
/// what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorPlan {
    /// For connections, with those that are opened to be refused.
    pub connections: usize,
    /// For uploads that calls go on with.
    pub uploads: usize,
    /// For contents of blobs that are read.
    pub contents: usize,
    /// For tables of databases on disk that are kept open, out of the reserve.
    pub tables: usize,
}

/// A process may open too few files for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process may have {limit} file descriptors (`ulimit -n`, `LimitNOFILE=` of systemd), and \
     this server needs {needed}: {DESCRIPTORS_LEAST}, {DESCRIPTORS_PER_THREAD} for each thread \
     ({threads}), and 1 for each address ({listeners}), that of metrics included; raise that \
     limit, or lower --threads"
)]
pub struct TooFewDescriptors {
    /// What it may have (RLIMIT_NOFILE), as far as that may be raised.
    pub limit: usize,
    /// What is needed at least.
    pub needed: usize,
    /// By so many threads.
    pub threads: usize,
    /// And for so many addresses.
    pub listeners: usize,
}

impl DescriptorPlan {
    /// Checks whether this process may open what a server needs at least.
    ///
    /// # Errors
    /// If it may not.
    pub fn check_process(threads: usize, listeners: usize) -> Result<(), TooFewDescriptors> {
        let limit = getrlimit(Resource::Nofile).maximum;
        let limit = limit.map_or(usize::MAX, |limit| limit as usize);
        DescriptorPlan::check_limit(limit, threads, listeners)
    }

    fn check_limit(
        limit: usize,
        threads: usize,
        listeners: usize,
    ) -> Result<(), TooFewDescriptors> {
        let needed = DescriptorPlan::least(threads, listeners);
        match limit < needed {
            true => Err(TooFewDescriptors {
                limit,
                needed,
                threads,
                listeners,
            }),
            false => Ok(()),
        }
    }

    /// Returns with how many descriptors a server of so many threads and addresses starts.
    pub fn least(threads: usize, listeners: usize) -> usize {
        let of_threads = threads.saturating_mul(DESCRIPTORS_PER_THREAD);
        of_threads.saturating_add(listeners.saturating_add(DESCRIPTORS_LEAST))
    }

    /// Returns the plan for this process, from its limit on descriptors (RLIMIT_NOFILE) as far as
    /// it may be raised.
    pub fn of_process() -> DescriptorPlan {
        let limit = getrlimit(Resource::Nofile).maximum;
        DescriptorPlan::with_limit(limit.map_or(usize::MAX, |limit| limit as usize))
    }

    /// Returns the plan for a limit.
    pub fn with_limit(limit: usize) -> DescriptorPlan {
        let reserved = (limit / 4).clamp(DESCRIPTORS_RESERVED_MIN, DESCRIPTORS_RESERVED);
        let rest = limit.saturating_sub(reserved);
        let uploads = (rest / 4).clamp(1, OPEN_UPLOADS);
        let contents = (rest / 4).clamp(1, OPEN_CONTENTS);
        DescriptorPlan {
            connections: rest.saturating_sub(uploads + contents).max(1),
            uploads,
            contents,
            tables: (reserved / DESCRIPTORS_TABLES_SHARE).min(OPEN_FILES),
        }
    }

    /// Lowers what trees keep open to what there is for it.
    pub fn bound_tables(&self, config: &mut TreeConfig) {
        config.open_files = config.open_files.min(self.tables);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_leaves_the_reserve_and_gives_everybody_something() {
        for limit in [0, 33, 64, 128, 1024, 1 << 20, usize::MAX] {
            let plan = DescriptorPlan::with_limit(limit);
            assert!(plan.connections > 0 && plan.uploads > 0 && plan.contents > 0);
            assert!(plan.tables > 0);
            if limit >= 64 {
                let planned = plan.connections + plan.uploads + plan.contents + plan.tables;
                let log = DESCRIPTORS_RESERVED_MIN - DESCRIPTORS_RESERVED_MIN / 4;
                assert!(planned + log <= limit, "{limit}: {plan:?}");
            }
        }
        assert_eq!(DescriptorPlan::with_limit(64).tables, 8);
        assert_eq!(DescriptorPlan::with_limit(usize::MAX).tables, OPEN_FILES);
    }

    #[test]
    fn what_is_needed_at_least_leaves_connections() {
        for threads in [1, 2, 16, 64] {
            let needed = DESCRIPTORS_LEAST + threads * DESCRIPTORS_PER_THREAD + 3;
            assert_eq!(DescriptorPlan::check_limit(needed, threads, 3), Ok(()));
            let limit = needed - 1;
            let refused = DescriptorPlan::check_limit(limit, threads, 3);
            let refusal = refused.expect_err("one too few");
            assert_eq!((refusal.limit, refusal.needed), (limit, needed));
            assert_eq!((refusal.threads, refusal.listeners), (threads, 3));
            assert!(DescriptorPlan::with_limit(needed).connections > 1);
        }
    }

    #[test]
    fn a_tree_keeps_no_more_tables_open_than_it_may() {
        for limit in [64, 128, 4096] {
            let plan = DescriptorPlan::with_limit(limit);
            let mut config = TreeConfig::default();
            for _ in 0..2 {
                plan.bound_tables(&mut config);
                assert_eq!(config.open_files, plan.tables, "{limit}");
            }
            config.open_files = 1;
            plan.bound_tables(&mut config);
            assert_eq!(config.open_files, 1, "{limit}");
        }
    }
}
