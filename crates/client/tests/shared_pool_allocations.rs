//! A unary call of a shared pool allocates nothing once the pool is warm.

mod common;
#[path = "common/pooled.rs"]
mod pooled;

use allocation_counter::measure;
use client::{PoolCall, SharedPool};
use common::{by_path, serve_all};

#[test]
fn a_thread_that_drives_its_calls_allocates_nothing() {
    let (address, server) = serve_all(by_path, 1);
    let pool = SharedPool::new(&[address], pooled::of(1), 7).expect("the address is known");
    let echo = PoolCall {
        timeout_ns: Some(60_000_000_000),
        ..pooled::call("/t.T/Echo")
    };
    let mut answer = Vec::new();
    let mut calls = || {
        for _ in 0..100 {
            let answered = pool.unary_into(&echo, &[7; 24], &mut answer);
            assert!(answered.is_ok() && answer == [7; 24]);
        }
    };
    for _ in 0..20 {
        calls();
    }
    let allocated = measure(&mut calls);
    assert_eq!(allocated.count_total, 0, "in 100 calls");
    drop(pool);
    server.join().expect("it ends with the connection");
}
