//! Sends back what it receives: the cost of the event loop alone.
//!
//! `echo ADDRESS [THREADS]` prints `listening on ADDRESS` and serves until it is told to stop.

use net::{
    Closed, ConnectionId, Connections, Handler, Io, LoopConfig, LoopStart, Loops, Notice, Notices,
    Peer,
};
use std::sync::Arc;

struct Echo;

impl Handler for Echo {
    fn opened(&mut self, _: ConnectionId, _: &Peer, _: &mut Io, _: u64) {}

    fn received(&mut self, _: ConnectionId, io: &mut Io, _: u64) {
        io.output.extend_from_slice(io.input.bytes());
        io.input.consume(io.input.len());
        if io.end_of_input() {
            io.close_when_written();
        }
    }

    fn writable(&mut self, _: ConnectionId, _: &mut Io, _: u64) {}
    fn closed(&mut self, _: ConnectionId, _: Closed, _: u64) {}
    fn tick(&mut self, _: &mut dyn Connections, _: u64) {}

    fn next_deadline_ns(&self) -> Option<u64> {
        None
    }

    fn stop(&mut self, _: &mut dyn Connections, _: u64) {}

    fn is_drained(&self) -> bool {
        true
    }
}

struct Print;

impl Notices for Print {
    fn notice(&self, notice: &Notice) {
        eprintln!("{notice}");
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments
        .next()
        .unwrap_or_else(|| "127.0.0.1:0".into())
        .parse()?;
    let threads = arguments.next().map_or(Ok(1), |count| count.parse())?;
    let notices = Arc::new(Print);
    let config = LoopConfig {
        listen: vec![address],
        threads,
        notices,
        ..LoopConfig::default()
    };
    let loops = Loops::bind(config)?;
    println!("listening on {}", loops.addresses()[0]);
    let ended = loops.run(|_: &LoopStart| Box::new(Echo))?;
    println!("drained: {}", ended.drained);
    Ok(())
}
