//! What a shared pool costs that nobody uses. Alone in its process, since it counts the wake-ups of
//! threads by their name.

mod common;
#[path = "common/pooled.rs"]
mod pooled;
#[path = "common/sharing.rs"]
mod sharing;

use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use client::{LocalPoolOptions, SharedPool};
use sharing::{assert_nothing_left, call, pool};

/// One test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// How often the threads of pools have been woken.
fn wakeups() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("there are threads");
    let of_task = |task: &Path| {
        let name = std::fs::read_to_string(task.join("comm")).ok()?;
        let status = std::fs::read_to_string(task.join("status")).ok()?;
        let mut lines = status.lines();
        let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        let count: u64 = count.trim().parse().ok()?;
        (name.trim() == "pelton-pool").then_some(count)
    };
    let tasks = tasks.filter_map(|task| of_task(&task.ok()?.path()));
    tasks.sum()
}

/// Counts the wake-ups of so long a time.
fn wakeups_in(time: Duration) -> u64 {
    let before = wakeups();
    thread::sleep(time);
    wakeups() - before
}

#[test]
fn an_idle_pool_sleeps_and_is_there_at_once() {
    let _alone = ALONE.lock();
    let (pool, server) = pool(2);
    for _ in 0..2 {
        for number in 0..100_u8 {
            let answer = match number % 2 {
                0 => pool.unary(&call("/t.T/Echo"), &[number]),
                _ => pollster::block_on(pool.unary_future(&call("/t.T/Echo"), &[number])),
            };
            assert_eq!(answer.expect("it is answered"), [number]);
        }
        assert_nothing_left(&pool);
        // Until it has seen that it is idle.
        thread::sleep(Duration::from_millis(2_500));
        let count = wakeups_in(Duration::from_secs(3));
        assert!(count <= 1, "{count} wake-ups in 3 s");
        let begun = Instant::now();
        pool.unary(&call("/t.T/Echo"), b"x")
            .expect("it is answered");
        let took = begun.elapsed();
        assert!(took < Duration::from_millis(200), "{took:?}");
    }
    drop(pool);
    server.join().expect("it ends with the connections");
}

#[test]
fn an_idle_pool_hears_of_a_connection_that_ends() {
    let _alone = ALONE.lock();
    let (address, listener) = common::listen();
    let options = LocalPoolOptions::default();
    let pool = SharedPool::new(&[address], options, 7).expect("the address is known");
    let server = thread::spawn(move || {
        let (socket, _) = listener.accept().expect("the client connects");
        common::greet(&socket);
        thread::sleep(Duration::from_millis(2_500));
        drop(socket);
        let ended = Instant::now();
        listener.accept().expect("it connects anew");
        ended.elapsed()
    });
    let took = server.join().expect("no panic");
    assert!(took < Duration::from_millis(500), "{took:?}");
    drop(pool);
}
