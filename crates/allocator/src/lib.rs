//! The allocator of the program, and what is set of it: the only unsafe code of the workspace,
//! which is therefore a crate of its own.

pub use mimalloc::MiMalloc as Allocator;

/// `mi_option_purge_delay` of mimalloc 3, whose binding does not name it. A test compares what it
/// stands for.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// `mi_option_page_max_reclaim` of mimalloc 3. A test compares its default.
const PAGE_MAX_RECLAIM: libmimalloc_sys::mi_option_t = 41;

/// What is freed goes back to the system at once, instead of after a second in which it might be
/// used again. To be called before the process starts threads.
pub fn give_back_at_once() {
    set_purge_delay_ms(0);
}

/// Leaves a page that was full to no thread, also when the thread that has filled it frees a part
/// of it: it goes back when it is empty, whichever thread has freed the last piece. Otherwise the
/// page is that thread's again, and comes back only when that thread allocates, or ends: one that
/// waits for its peer keeps what others have emptied. It costs some 0.1 µs where a piece is freed
/// in a page that is not in use for allocation. To be called before the process starts threads.
pub fn leave_pages_to_all() {
    // SAFETY: as in `set_purge_delay_ms`; it is a number of pages.
    unsafe { libmimalloc_sys::mi_option_set(PAGE_MAX_RECLAIM, 0) };
}

/// Gives back what the calling thread has freed and what others have freed of its memory, as far as
/// whole pages are free. Threads keep that for what they will need next, and only they can give it
/// back.
pub fn give_back() {
    // SAFETY: it may be called by any thread at any time, and touches nothing that is not free.
    unsafe { libmimalloc_sys::mi_collect(false) };
}

/// The same, and at once what would go back some time after it was freed: it only does when
/// somebody allocates, so that the memory of threads that have nothing to do any more would stay.
pub fn give_back_all() {
    // SAFETY: as in `give_back`.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

/// Has the C library take what it allocates itself from one place, instead of 64 MiB of addresses
/// for each thread: a limit on the address space (`ulimit -v`) would be used up by that. Nothing of
/// weight is allocated there. To be called before the process starts threads.
pub fn share_arena_of_c_library() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn mallopt(option: std::ffi::c_int, value: std::ffi::c_int) -> std::ffi::c_int;
        }
        /// `M_ARENA_MAX` of `malloc.h`.
        const ARENA_MAX: std::ffi::c_int = -8;
        // SAFETY: it sets a number of the C library's allocator, under its own lock.
        unsafe { mallopt(ARENA_MAX, 1) };
    }
}

fn set_purge_delay_ms(delay_ms: std::ffi::c_long) {
    // SAFETY: the option exists in this version, and any number is a delay. It is a plain variable
    // of the allocator, written before there are threads that read it; whoever calls later changes
    // when memory is given back, and nothing else.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, delay_ms) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: Allocator = Allocator;

    /// Held by each test: what one frees is not to be taken for what another has filled.
    static MEMORY: std::sync::Mutex<()> = std::sync::Mutex::new(());

    fn purge_delay_ms() -> std::ffi::c_long {
        // SAFETY: the option exists in this version; it is read by the thread that sets it.
        unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) }
    }

    /// The bytes of this process that are in memory: `VmRSS`.
    fn resident_bytes() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
        let line = status.lines().find(|line| line.starts_with("VmRSS"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        kib.and_then(|kib| kib.parse::<usize>().ok())
            .expect("a number")
            << 10
    }

    /// Fills buffers, frees them, and returns by how much the process has grown.
    fn growth_by_what_was_freed() -> usize {
        let before = resident_bytes();
        let filled: Vec<_> = (0..64).map(|_| vec![1_u8; 1 << 20]).collect();
        // Less than all of it: the system may take pages back meanwhile that were idle.
        assert!(resident_bytes() >= before + (48 << 20), "it is filled");
        drop(std::hint::black_box(filled));
        resident_bytes().saturating_sub(before)
    }

    /// Any thread may, also one that has nothing, and nothing that is in use is touched.
    #[test]
    fn what_is_in_use_is_kept() {
        let _memory = MEMORY.lock();
        let kept: Vec<_> = (0..2_000_usize).map(|at| vec![at; 100]).collect();
        for _ in 0..2 {
            let freed: Vec<_> = (0..2_000).map(|_| vec![7_usize; 100]).collect();
            let gives_back = move || {
                drop(freed);
                give_back();
            };
            let thread = std::thread::Builder::new().spawn(gives_back);
            thread
                .expect("the system has a thread to give")
                .join()
                .expect("it has nothing to do");
            give_back();
            let is_whole = |(at, one): (usize, &Vec<usize>)| one.iter().all(|value| *value == at);
            assert!(kept.iter().enumerate().all(is_whole));
        }
    }

    /// Fills pages with small pieces and keeps one here and there, all in one thread, which then
    /// waits while this one frees the rest. Returns what is left of what it took.
    fn bytes_kept_by_a_thread_that_waits() -> usize {
        let before = resident_bytes();
        let (hand_over, pieces) = std::sync::mpsc::channel();
        let (end, is_over) = std::sync::mpsc::channel::<()>();
        let owner = std::thread::Builder::new().spawn(move || {
            let all: Vec<_> = (0..320_000_usize).map(|at| vec![at as u8; 200]).collect();
            let some = all.into_iter().step_by(300);
            hand_over
                .send(some.collect::<Vec<_>>())
                .expect("it is waited for");
            let _ = is_over.recv();
        });
        let owner = owner.expect("the system has a thread to give");
        let pieces = pieces.recv().expect("they come");
        assert!(
            resident_bytes() >= before + (48 << 20),
            "one here and there keeps the pages"
        );
        drop(pieces);
        give_back();
        let kept = resident_bytes().saturating_sub(before);
        drop(end);
        owner.join().expect("it has nothing left to do");
        kept
    }

    #[test]
    fn pages_that_another_thread_empties_go_back() {
        let _memory = MEMORY.lock();
        // SAFETY: the option exists in this version, which is what is looked at.
        let page_max_reclaim = || unsafe { libmimalloc_sys::mi_option_get(PAGE_MAX_RECLAIM) };
        assert_eq!(
            page_max_reclaim(),
            -1,
            "the default, which is that of no neighbour"
        );
        give_back_at_once();
        assert!(
            bytes_kept_by_a_thread_that_waits() > 32 << 20,
            "the test sees it"
        );
        leave_pages_to_all();
        assert_eq!(page_max_reclaim(), 0);
        for _ in 0..2 {
            assert!(bytes_kept_by_a_thread_that_waits() < 8 << 20);
        }
        set_purge_delay_ms(1_000);
    }

    #[test]
    fn what_is_freed_goes_back_at_once() {
        let _memory = MEMORY.lock();
        let before = resident_bytes();
        // The default of the option that is meant, and of none of its neighbours.
        assert_eq!(purge_delay_ms(), 1_000);
        for _ in 0..2 {
            give_back_at_once();
            assert_eq!(purge_delay_ms(), 0);
            assert!(growth_by_what_was_freed() < 8 << 20);
        }
        set_purge_delay_ms(1_000);
        assert!(growth_by_what_was_freed() > 32 << 20, "the test sees it");
        // The next test is not to find it there, and to use it again.
        // SAFETY: as in `give_back`.
        unsafe { libmimalloc_sys::mi_collect(true) };
        assert!(resident_bytes() < before + (8 << 20), "all is given back");
    }
}
