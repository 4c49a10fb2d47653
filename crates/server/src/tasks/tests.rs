//! Tasks that do what the test says, and the calls that wait for them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use api::admin::{BackupProgress, SnapshotResponse};
use service::{Task, TaskFailure, TaskFailureKind, TaskRefusal};
use wire::grpc::Code;
use wire::{Event, StreamKey};

use super::{DoneTask, Jobs, TaskCaller, TaskProgress, TaskProgressNews, TaskWatch, Tasks, tell};
use crate::call_id::CallId;
use crate::clock::TimeSource;
use crate::inbox::Inbox;
use crate::limits;
use crate::pair::Pair;

const BACKUP: &str = "/pelton.v1.Admin/Backup";
const SNAPSHOT: &str = "/pelton.v1.Admin/Snapshot";

/// BackupRequest: name "a".
const NAMED_A: &[u8] = &[0x0a, 1, b'a'];

/// How long anything may take before a test gives up on it.
const TIMEOUT: Duration = Duration::from_secs(20);

/// What a task is told to do next.
enum Order {
    Tell(u64),
    End(Result<DoneTask, TaskFailure>),
}

/// Tasks that obey the test, and tell it when they were stopped.
struct Obeying {
    orders: Mutex<Receiver<Order>>,
    stopped: Sender<Task>,
}

impl Jobs for Obeying {
    fn refuse(&self, _task: &Task) -> Option<TaskRefusal> {
        None
    }

    fn run(&self, task: &Task, watch: &mut TaskWatch<'_>) -> Result<DoneTask, TaskFailure> {
        let orders = self.orders.lock().expect("one task at a time");
        loop {
            if watch.is_cancelled() {
                self.stopped.send(task.clone()).expect("the test listens");
                return Err(failure(TaskFailureKind::Stopping));
            }
            match orders.recv_timeout(Duration::from_millis(1)) {
                Ok(Order::Tell(written_bytes)) => {
                    watch.tell(TaskProgress::Backup(BackupProgress {
                        written_bytes,
                        ..BackupProgress::default()
                    }))
                }
                Ok(Order::End(result)) => return result,
                Err(_) => {}
            }
        }
    }
}

fn failure(kind: TaskFailureKind) -> TaskFailure {
    let message = "no luck".into();
    TaskFailure { kind, message }
}

fn snapshot() -> DoneTask {
    DoneTask::Snapshot(SnapshotResponse {
        sequence: 9,
        ..SnapshotResponse::default()
    })
}

struct Room {
    pair: Pair,
    orders: Sender<Order>,
    stopped: Receiver<Task>,
    events: Vec<Event>,
}

impl Room {
    fn new() -> Room {
        let (orders, receiver) = channel();
        let (sender, stopped) = channel();
        let jobs = Obeying {
            orders: Mutex::new(receiver),
            stopped: sender,
        };
        let mut pair = Pair::with_jobs(Box::new(jobs));
        pair.accept(false);
        pair.greet();
        Room {
            pair,
            orders,
            stopped,
            events: Vec::new(),
        }
    }

    fn call(&mut self, path: &str, message: &[u8]) -> StreamKey {
        let stream = self.pair.call(path, message);
        self.turn();
        stream
    }

    fn turn(&mut self) {
        let events = self.pair.turn();
        self.events.extend(events);
    }

    fn order(&self, order: Order) {
        self.orders.send(order).expect("the jobs live");
    }

    /// Turns until something has come for a stream.
    fn wait_for(&mut self, wanted: impl Fn(&Event) -> bool) {
        let until = Instant::now() + TIMEOUT;
        while !self.events.iter().any(&wanted) {
            assert!(Instant::now() < until, "{:?}", self.events);
            std::thread::yield_now();
            self.turn();
        }
        self.events.retain(|event| !wanted(event));
    }

    fn wait_for_end(&mut self, stream: StreamKey) -> Code {
        self.wait_for(|event| *event == Event::Finished { stream });
        let code = self.pair.client.status().code();
        self.pair.client.forget(stream);
        code
    }

    fn wait_for_stop(&self) -> Task {
        self.stopped.recv_timeout(TIMEOUT).expect("it stops")
    }
}

#[test]
fn a_call_hears_how_its_task_goes_and_how_it_ends() {
    let mut room = Room::new();
    let stream = room.call(BACKUP, NAMED_A);
    room.order(Order::Tell(2));
    room.wait_for(|event| matches!(event, Event::Message { .. }));
    // In the same moment: passed over.
    room.order(Order::Tell(3));
    let progress = BackupProgress {
        complete: true,
        ..BackupProgress::default()
    };
    let path = "/a".to_owned();
    room.order(Order::End(Ok(DoneTask::Backup { progress, path })));
    room.wait_for(|event| matches!(event, Event::Message { .. }));
    assert_eq!(room.wait_for_end(stream), Code::Ok);
    let messages = room.events.iter();
    assert_eq!(
        messages
            .filter(|event| matches!(event, Event::Message { .. }))
            .count(),
        0
    );

    let stream = room.call(SNAPSHOT, b"");
    room.order(Order::End(Err(failure(TaskFailureKind::Full))));
    assert_eq!(room.wait_for_end(stream), Code::ResourceExhausted);

    let stream = room.call(SNAPSHOT, b"");
    room.order(Order::End(Ok(snapshot())));
    assert_eq!(room.wait_for_end(stream), Code::Ok);
}

/// Progress is told as often as a person sees it move, however quick the steps are.
#[test]
fn progress_is_told_ten_times_a_second_at_most() {
    #[derive(Default)]
    struct Now(AtomicU64);

    impl TimeSource for Now {
        fn monotonic_ns(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        fn wall_ms(&self) -> u64 {
            0
        }
    }

    let (time, inbox) = (Now::default(), Inbox::new(Arc::new(|| {})));
    let mut watch = TaskWatch {
        cancel: &AtomicBool::new(false),
        inbox: &inbox,
        call: CallId::from_tag(7),
        time: &time,
        told_ns: None,
    };
    let interval_ns = limits::TASK_PROGRESS_MS * 1_000_000;
    for (step_ns, is_told) in [
        (0, true),
        (0, false),
        (interval_ns - 1, false),
        (1, true),
        (interval_ns - 1, false),
        (1, true),
    ] {
        time.0.fetch_add(step_ns, Ordering::Relaxed);
        watch.tell(TaskProgress::Backup(BackupProgress::default()));
        assert_eq!(!inbox.take_all().is_empty(), is_told, "{step_ns}");
    }
}

/// While its loop is busy: what was not looked at is outdated by what follows, of the same call.
#[test]
fn only_the_newest_progress_of_a_call_waits_for_its_loop() {
    let inbox = Inbox::new(Arc::new(|| {}));
    let (call, other) = (CallId::from_tag(7), CallId::from_tag(8));
    let progress = |written_bytes| {
        TaskProgressNews::Progress(TaskProgress::Backup(BackupProgress {
            written_bytes,
            ..BackupProgress::default()
        }))
    };
    for _ in 0..2 {
        for (of, news) in [
            (other, progress(1)),
            (call, progress(2)),
            (call, progress(3)),
            (other, TaskProgressNews::Done(snapshot())),
            (call, progress(4)),
            (other, progress(5)),
        ] {
            tell(&inbox, of, news);
        }
        let expected = [
            (other, TaskProgressNews::Done(snapshot())),
            (call, progress(4)),
            (other, progress(5)),
        ];
        assert_eq!(inbox.take_all(), expected);
        assert!(inbox.take_all().is_empty());
    }
}

#[test]
fn one_task_runs_at_a_time_and_the_next_when_it_has_ended() {
    let mut room = Room::new();
    let first = room.call(BACKUP, NAMED_A);
    let second = room.call(SNAPSHOT, b"");
    // Its caller has a place already.
    let third = room.call(SNAPSHOT, b"");
    assert_eq!(room.wait_for_end(third), Code::Unavailable);
    assert!(!(room.events).contains(&Event::Finished { stream: second }));
    room.order(Order::End(Err(failure(TaskFailureKind::Device))));
    assert_eq!(room.wait_for_end(first), Code::Unavailable);
    room.order(Order::End(Ok(snapshot())));
    assert_eq!(room.wait_for_end(second), Code::Ok);
    // The very next call finds the place free.
    for _ in 0..50 {
        let next = room.call(SNAPSHOT, b"");
        room.order(Order::End(Ok(snapshot())));
        assert_eq!(room.wait_for_end(next), Code::Ok);
    }
}

#[test]
fn a_task_waits_for_its_turn_for_a_time_and_not_when_its_caller_has_gone() {
    let mut room = Room::new();
    let first = room.call(BACKUP, NAMED_A);
    for _ in 0..2 {
        let waits = room.call(SNAPSHOT, b"");
        let Pair { client, sent, .. } = &mut room.pair;
        client.reset(waits, sent, wire::ErrorCode::Cancel);
        client.forget(waits);
        room.turn();
        let waits = room.call(SNAPSHOT, b"");
        room.pair.now_ns += limits::TASK_WAIT_MS * 1_000_000 - 1;
        room.turn();
        assert!(!room.events.contains(&Event::Finished { stream: waits }));
        room.pair.now_ns += 1;
        // Nothing comes from the client.
        let due_ns = net::Handler::next_deadline_ns(&room.pair.handler);
        assert!(due_ns.is_some_and(|due_ns| due_ns <= room.pair.now_ns));
        assert_eq!(room.wait_for_end(waits), Code::Unavailable);
    }
    room.order(Order::End(Err(failure(TaskFailureKind::Device))));
    assert_eq!(room.wait_for_end(first), Code::Unavailable);
    assert!(room.pair.tasks.lock().running.is_none());
}

/// One that always asks for the next one, with however many calls, is one of those that take turns.
#[test]
fn each_caller_has_one_place_among_those_that_wait() {
    let room = Room::new();
    let tasks: Arc<Tasks> = Arc::clone(&room.pair.tasks);
    let inbox = Inbox::new(Arc::new(|| {}));
    let start = |caller: u64, call: u64| {
        let of = (TaskCaller::Connection(caller), CallId::from_tag(call));
        tasks.start(Task::Snapshot, of, &inbox)
    };
    let mut held = vec![start(0, 0).expect("none runs")];
    for caller in 0..limits::WAITING_TASKS as u64 {
        held.push(start(caller, 1 + caller).expect("it has none"));
        assert_eq!(start(caller, 99).err(), Some(TaskRefusal::Busy));
    }
    assert_eq!(
        start(77, 98).err(),
        Some(TaskRefusal::Busy),
        "all are taken"
    );
    drop(held.remove(2));
    held.push(start(77, 98).expect("a place is free again"));
    // In the order in which they came.
    let calls = [0, 1].into_iter().chain(3..=limits::WAITING_TASKS as u64);
    for call in calls.chain([98]) {
        room.order(Order::End(Ok(snapshot())));
        let until = Instant::now() + TIMEOUT;
        let mut news = inbox.take_all();
        while news.is_empty() {
            assert!(Instant::now() < until, "{call}");
            std::thread::yield_now();
            news = inbox.take_all();
        }
        assert_eq!(
            news,
            [(CallId::from_tag(call), TaskProgressNews::Done(snapshot()))]
        );
    }
}

#[test]
fn a_task_stops_when_its_caller_goes_away() {
    let mut room = Room::new();
    let stream = room.call(BACKUP, NAMED_A);
    let Room { pair, .. } = &mut room;
    pair.client
        .reset(stream, &mut pair.sent, wire::ErrorCode::Cancel);
    room.turn();
    assert!(matches!(room.wait_for_stop(), Task::Backup { .. }));

    // Its connection is lost. What it still says reaches nobody.
    let until = Instant::now() + TIMEOUT;
    while room.pair.tasks.lock().running.is_some() {
        assert!(Instant::now() < until, "the place becomes free");
        std::thread::yield_now();
    }
    room.call(SNAPSHOT, b"");
    room.pair.close();
    assert_eq!(room.wait_for_stop(), Task::Snapshot);
    room.pair.tasks.stop();
    assert_eq!(room.pair.handler.tell_nobody(), 1);
}

#[test]
fn a_stop_ends_a_task_that_takes_too_long_once_and_waits_for_it() {
    let mut room = Room::new();
    let stream = room.call(BACKUP, NAMED_A);
    room.pair.stop();
    // A call that the server has still to answer goes on for a while...
    room.pair.now_ns += 1_000_000_000;
    room.turn();
    assert!(!room.events.contains(&Event::Finished { stream }));
    assert!(!net::Handler::is_drained(&room.pair.handler));
    // ... but not for ever.
    room.pair.now_ns += 20_000_000_000;
    assert_eq!(room.wait_for_end(stream), Code::Unavailable);
    let tasks = Arc::clone(&room.pair.tasks);
    tasks.stop();
    assert!(matches!(room.stopped.try_recv(), Ok(Task::Backup { .. })));
    room.turn();
    assert_eq!(
        tasks
            .start(
                Task::Snapshot,
                (TaskCaller::Connection(0), CallId::from_tag(0)),
                &Inbox::new(Arc::new(|| {}))
            )
            .err(),
        Some(TaskRefusal::Stopping)
    );
}

#[test]
fn a_task_that_is_quick_is_answered_while_the_server_stops() {
    let mut room = Room::new();
    let stream = room.call(SNAPSHOT, b"");
    room.pair.stop();
    room.order(Order::End(Ok(snapshot())));
    assert_eq!(room.wait_for_end(stream), Code::Ok);
}

/// A call for which the system gives no thread is told that, and so is the log; the next one has
/// its place.
#[test]
fn without_a_thread_it_is_said_so() {
    let room = Room::new();
    let tasks = Arc::clone(&room.pair.tasks);
    let start = || {
        let inbox = Inbox::new(Arc::new(|| {}));
        let of = (TaskCaller::Connection(0), CallId::from_tag(0));
        tasks.start(Task::Snapshot, of, &inbox).map(drop)
    };
    crate::threads::NO_THREADS.set(true);
    assert_eq!(start(), Err(TaskRefusal::NoThread));
    crate::threads::NO_THREADS.set(false);
    assert_eq!(start(), Ok(()));
    let said = room.pair.said.lock().expect("one thread");
    assert!(
        said.iter()
            .any(|line| line.contains("no thread for a backup"))
    );
}
