//! How much memory the data may take, and how it is given back.

use std::path::Path;

use crate::arguments::DriverChoice;
use crate::exit::Failure;
use crate::limits::{GIVE_BACK_AT_ONCE_BELOW_BYTES, HUGE_PAGES_FROM_BYTES};
use crate::memory::{self, MemoryBound};
use crate::settings::Settings;
use crate::size::{MemoryLimit, Size};

/// The memory limit where it cannot be found out what this process may use.
const UNKNOWN_MEMORY_LIMIT_BYTES: u64 = 1 << 30;

/// Bounds what the process takes of memory, before there are threads. Returns the limit.
pub(super) fn prepare(settings: &Settings) -> Result<u64, Failure> {
    memory::check_resource_limits(Path::new("/")).map_err(Failure::Failed)?;
    allocator::share_arena_of_c_library();
    allocator::leave_pages_to_all();
    let memory_limit_bytes = memory_limit_bytes(settings.memory_limit);
    if settings.driver == DriverChoice::Blocking || memory_limit_bytes < HUGE_PAGES_FROM_BYTES {
        memory::forgo_huge_pages();
    }
    if memory_limit_bytes < GIVE_BACK_AT_ONCE_BELOW_BYTES {
        allocator::give_back_at_once();
    }
    Ok(memory_limit_bytes)
}

fn memory_limit_bytes(limit: MemoryLimit) -> u64 {
    let percent = match limit {
        MemoryLimit::Bytes(size) => {
            if let Some((allowed, bound)) = memory::allowed_bytes(Path::new("/"))
                && size.0 > allowed
            {
                tracing::warn!(
                    "--memory-limit {size} is more than {}, {bound}: the system may end the server \
                     before its own limit is reached",
                    Size::rounded(allowed)
                );
            }
            return size.0;
        }
        MemoryLimit::Percent(percent) => percent,
    };
    match memory::allowed_bytes(Path::new("/")) {
        Some((allowed, bound)) => {
            let limit = allowed / 100 * u64::from(percent);
            let (shown, of) = (Size::rounded(limit), Size::rounded(allowed));
            match bound {
                MemoryBound::Machine => {
                    tracing::debug!("memory for data: {shown}, {percent}% of {of}, {bound}")
                }
                _ => {
                    tracing::info!("memory for data: {shown}, {percent}% of {of}, which is {bound}")
                }
            }
            limit
        }
        None => {
            tracing::warn!(
                "cannot find out how much memory there is: limiting data to {}; --memory-limit \
                 says otherwise",
                Size(UNKNOWN_MEMORY_LIMIT_BYTES)
            );
            UNKNOWN_MEMORY_LIMIT_BYTES
        }
    }
}
