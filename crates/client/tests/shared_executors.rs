//! Futures of a shared pool under executors of others, and under none.

mod common;
#[path = "common/pooled.rs"]
mod pooled;
#[path = "common/sharing.rs"]
mod sharing;

use client::{CallError, PoolStream, SharedPool};
use sharing::{assert_nothing_left, call, pool};

const TASKS: u32 = 16;

/// Unary calls and a stream, each with its own answers.
async fn work(pool: SharedPool, task: u32) -> u32 {
    let mut answered = 0;
    for number in 0..20_u32 {
        let identity = [task.to_be_bytes(), number.to_be_bytes()].concat();
        let answer = pool.unary_future(&call("/t.T/Echo"), &identity).await;
        assert_eq!(answer.expect("it is answered"), identity);
        answered += 1;
    }
    let mut stream = pool.stream(&call("/t.T/Chat"));
    for number in 0..20_u32 {
        let identity = [task.to_be_bytes(), number.to_be_bytes()].concat();
        stream.send_future(&identity).await.expect("it goes on");
        let answer = next(&mut stream).await.expect("it goes on");
        assert_eq!(answer, Some(identity));
        answered += 1;
    }
    stream.finish();
    assert_eq!(next(&mut stream).await.expect("it ends with OK"), None);
    answered
}

async fn next(stream: &mut PoolStream) -> Result<Option<Vec<u8>>, CallError> {
    stream.receive_future().await
}

/// Runs all tasks twice on one pool, as `run` does it.
fn check(run: impl Fn(&SharedPool) -> u32) {
    let (pool, server) = pool(2);
    for _ in 0..2 {
        assert_eq!(run(&pool), TASKS * 40);
        assert_nothing_left(&pool);
    }
    drop(pool);
    server.join().expect("it ends with the connections");
}

#[test]
fn tokio_polls_its_futures() {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).build().expect("it starts");
    check(|pool| {
        runtime.block_on(async {
            let tasks = (0..TASKS).map(|task| tokio::spawn(work(pool.clone(), task)));
            let tasks: Vec<_> = tasks.collect();
            let mut answered = 0;
            for task in tasks {
                answered += task.await.expect("no panic");
            }
            answered
        })
    });
}

/// A timeout of the executor drops the future, which cancels the call.
#[test]
fn a_timeout_of_tokio_cancels_a_call() {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_time().build();
    let runtime = runtime.expect("it starts");
    let (pool, server) = pool(1);
    for round in 1..3 {
        runtime.block_on(async {
            let soon = std::time::Duration::from_millis(20);
            let unary = pool.unary_future(&call("/t.T/Silent"), b"x");
            assert!(tokio::time::timeout(soon, unary).await.is_err());
            let mut stream = pool.stream(&call("/t.T/Silent"));
            assert!(tokio::time::timeout(soon, next(&mut stream)).await.is_err());
        });
        assert_nothing_left(&pool);
        assert_eq!(pool.statistics().counters.cancelled, 2 * round);
    }
    drop(pool);
    server.join().expect("it ends with the connection");
}

#[test]
fn the_executor_of_smol_polls_its_futures() {
    check(|pool| {
        let executor = async_executor::Executor::new();
        let tasks = (0..TASKS).map(|task| executor.spawn(work(pool.clone(), task)));
        let tasks: Vec<_> = tasks.collect();
        futures_lite::future::block_on(executor.run(async {
            let mut answered = 0;
            for task in tasks {
                answered += task.await;
            }
            answered
        }))
    });
}

#[test]
fn a_bare_block_on_polls_its_futures() {
    check(|pool| {
        let tasks = (0..TASKS).map(|task| pollster::block_on(work(pool.clone(), task)));
        tasks.sum()
    });
}
