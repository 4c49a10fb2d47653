//! A small HTTP/1.1 server for scrapes: a request, an answer, and the connection is closed.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

use super::MetricsAddress;
use super::exposition::CONTENT_TYPE;
use crate::limits::{
    METRICS_ACCEPT_BACKOFF_MS, METRICS_CONNECTIONS, METRICS_DESCRIPTORS_SHARE,
    METRICS_REQUEST_BYTES, METRICS_UNREAD_BYTES,
};

/// Makes the page of metrics, as they are now.
pub type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// A listener that nobody serves yet: connections wait.
pub struct BoundEndpoint {
    listener: TcpListener,
    address: SocketAddr,
}

/// The threads that answer. Ended with the value.
pub struct Endpoint {
    bound: Arc<BoundEndpoint>,
    scrapers: Arc<Scrapers>,
    acceptor: Option<JoinHandle<()>>,
}

impl BoundEndpoint {
    /// Listens.
    pub fn bind(address: &MetricsAddress) -> io::Result<BoundEndpoint> {
        let listener = TcpListener::bind((address.host.as_str(), address.port))?;
        let address = listener.local_addr()?;
        Ok(BoundEndpoint { listener, address })
    }

    /// Where, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers from now on, for each connection as long as `timeout` at most.
    pub fn serve(self, render: Render, timeout: Duration) -> io::Result<Endpoint> {
        let bound = Arc::new(self);
        let scrapers = Arc::new(Scrapers {
            render,
            timeout,
            max_connections: max_connections(getrlimit(Resource::Nofile).current),
            renderings: Mutex::default(),
            rendered: Condvar::new(),
            stopped: AtomicBool::new(false),
            open: Mutex::default(),
            ended: Condvar::new(),
            given_back: Condvar::new(),
        });
        let (listens, serves) = (Arc::clone(&bound), Arc::clone(&scrapers));
        let acceptor = thread::Builder::new()
            .name("pelton-metrics".into())
            .spawn(move || accept(&listens.listener, &serves))?;
        Ok(Endpoint {
            bound,
            scrapers,
            acceptor: Some(acceptor),
        })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.scrapers.stopped.store(true, Ordering::Release);
        // Wakes the thread that waits in `accept`; on Linux it does, and fails for no socket that
        // listens.
        let _ = rustix::net::shutdown(&self.bound.listener, rustix::net::Shutdown::Both);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        self.scrapers.close_all();
    }
}

/// What the threads of scrapers share.
struct Scrapers {
    render: Render,
    timeout: Duration,
    max_connections: usize,
    renderings: Mutex<Renderings>,
    /// A page was made.
    rendered: Condvar,
    stopped: AtomicBool,
    open: Mutex<OpenPageConnections>,
    /// A thread has ended.
    ended: Condvar,
    /// A page was given back.
    given_back: Condvar,
}

/// The pages that are made: one at a time, and one for all who asked before it was begun, so that
/// what scrapers cost does not grow with their number.
#[derive(Default)]
struct Renderings {
    begun: u64,
    /// As many as were begun, or one less while one is made.
    done: u64,
    /// Scrapers that wait for a page.
    waiting: usize,
    /// The last page, while somebody waits.
    page: Option<Arc<CountedPage>>,
}

/// A scraper's share of the descriptors that the process may have: two for a connection, and most
/// of them are for others.
fn max_connections(descriptors: Option<u64>) -> usize {
    let share = descriptors.unwrap_or(u64::MAX) / METRICS_DESCRIPTORS_SHARE;
    usize::try_from(share / 2).map_or(METRICS_CONNECTIONS, |most| {
        most.clamp(2, METRICS_CONNECTIONS)
    })
}

/// The connections that are open.
#[derive(Default)]
struct OpenPageConnections {
    /// By the order of arrival.
    connections: BTreeMap<u64, PageConnection>,
    next: u64,
    /// Bytes of pages that threads have, also those whose connection was closed just now.
    unread_bytes: usize,
    /// Threads; some are those of connections that were closed just now.
    threads: usize,
}

struct PageConnection {
    /// Another handle.
    socket: TcpStream,
    has_page: bool,
}

impl OpenPageConnections {
    fn close_first(&mut self, is_meant: impl Fn(&PageConnection) -> bool) {
        let first = self.connections.iter().find(|(_, one)| is_meant(one));
        let number = first.map(|(&number, _)| number);
        if let Some(closed) = number.and_then(|number| self.connections.remove(&number)) {
            // It is no connection any more, or will be none.
            let _ = closed.socket.shutdown(Shutdown::Both);
        }
    }
}

fn accept(listener: &TcpListener, scrapers: &Arc<Scrapers>) {
    while !scrapers.stopped.load(Ordering::Acquire) {
        let accepted = listener.accept();
        let begun = accepted.and_then(|(socket, _)| scrapers.begin(socket));
        if begun.is_err() && !scrapers.stopped.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(METRICS_ACCEPT_BACKOFF_MS));
        }
    }
}

impl Scrapers {
    /// Nothing that is done under this lock can panic half-way.
    fn open(&self) -> MutexGuard<'_, OpenPageConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a connection on a thread of its own. If there are too many, the oldest is closed
    /// first.
    fn begin(self: &Arc<Self>, socket: TcpStream) -> io::Result<()> {
        let number = {
            let mut open = self.open();
            if open.connections.len() >= self.max_connections {
                open.close_first(|_| true);
            }
            if open.threads >= 2 * self.max_connections {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let number = open.next;
            let connection = PageConnection {
                socket: socket.try_clone()?,
                has_page: false,
            };
            open.connections.insert(number, connection);
            open.next += 1;
            open.threads += 1;
            number
        };
        let this = Arc::clone(self);
        let run = move || {
            let mut socket = socket;
            // A scraper that goes away early has lost its own answer, and nothing else.
            let _ = serve(&mut socket, &|| this.page(number), this.timeout);
            drop(socket);
            this.end(number);
        };
        let thread = thread::Builder::new().name("pelton-scrape".into());
        thread
            .spawn(run)
            .map(drop)
            .inspect_err(|_| self.end(number))
    }

    /// Nothing that is done under this lock can panic half-way.
    fn renderings(&self) -> MutexGuard<'_, Renderings> {
        self.renderings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A page for a connection that was begun after this was called. Whoever finds none under way
    /// makes it for all who wait.
    fn page(self: &Arc<Self>, number: u64) -> io::Result<HeldPage<'_>> {
        let mut renderings = self.renderings();
        let wanted = renderings.begun + 1;
        renderings.waiting += 1;
        while renderings.done < wanted && !self.stopped.load(Ordering::Acquire) {
            if renderings.done < renderings.begun {
                let rendered = self.rendered.wait(renderings);
                renderings = rendered.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            renderings.begun += 1;
            drop(renderings);
            let page = self.make_page();
            renderings = self.renderings();
            renderings.done = renderings.begun;
            renderings.page = Some(page);
            self.rendered.notify_all();
        }
        renderings.waiting -= 1;
        let page = match renderings.waiting {
            0 => renderings.page.take(),
            _ => renderings.page.clone(),
        };
        drop(renderings);
        if let Some(connection) = self.open().connections.get_mut(&number) {
            connection.has_page = page.is_some();
        }
        let held = page.map(|page| HeldPage {
            page: Some(page),
            number,
            scrapers: self,
        });
        held.ok_or_else(|| io::ErrorKind::Interrupted.into())
    }

    /// Makes a page, once there is room for one more: others that do not read theirs are closed for
    /// it.
    fn make_page(self: &Arc<Self>) -> Arc<CountedPage> {
        let mut open = self.open();
        while open.unread_bytes >= METRICS_UNREAD_BYTES {
            open.close_first(|connection| connection.has_page);
            let given_back = self.given_back.wait(open);
            open = given_back.unwrap_or_else(PoisonError::into_inner);
        }
        drop(open);
        let mut text = (self.render)();
        text.shrink_to_fit();
        self.open().unread_bytes += text.len();
        Arc::new(CountedPage {
            text,
            scrapers: Arc::downgrade(self),
        })
    }

    fn end(&self, number: u64) {
        let mut open = self.open();
        open.connections.remove(&number);
        open.threads -= 1;
        self.ended.notify_all();
    }

    /// Closes all connections, and waits for their threads.
    fn close_all(&self) {
        let mut open = self.open();
        for connection in open.connections.values() {
            let _ = connection.socket.shutdown(Shutdown::Both);
        }
        while open.threads > 0 {
            let ended = self.ended.wait(open);
            open = ended.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A page of metrics, which counts until nobody has it any more.
struct CountedPage {
    text: String,
    scrapers: Weak<Scrapers>,
}

impl Drop for CountedPage {
    fn drop(&mut self) {
        // Before somebody else has its room.
        let text = std::mem::take(&mut self.text);
        let bytes = text.len();
        drop(text);
        if let Some(scrapers) = self.scrapers.upgrade() {
            scrapers.open().unread_bytes -= bytes;
            scrapers.given_back.notify_all();
        }
    }
}

/// A connection's hold on a page.
struct HeldPage<'a> {
    /// Until it is dropped.
    page: Option<Arc<CountedPage>>,
    /// Of its connection.
    number: u64,
    scrapers: &'a Scrapers,
}

impl HeldPage<'_> {
    fn text(&self) -> &str {
        self.page.as_ref().map_or("", |page| &page.text)
    }
}

impl Drop for HeldPage<'_> {
    fn drop(&mut self) {
        self.page = None;
        if let Some(connection) = self.scrapers.open().connections.get_mut(&self.number) {
            connection.has_page = false;
        }
        self.scrapers.given_back.notify_all();
    }
}

/// What a request is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HttpResponse {
    Page { with_body: bool },
    Index,
    NotFound,
    OnlyGet,
    NotHttp,
    TooLong,
}

impl fmt::Display for HttpResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HttpResponse::Page { .. } | HttpResponse::Index => "200 OK",
            HttpResponse::NotFound => "404 Not Found",
            HttpResponse::OnlyGet => "405 Method Not Allowed",
            HttpResponse::NotHttp => "400 Bad Request",
            HttpResponse::TooLong => "431 Request Header Fields Too Large",
        })
    }
}

fn serve<'a>(
    socket: &mut TcpStream,
    page: &dyn Fn() -> io::Result<HeldPage<'a>>,
    timeout: Duration,
) -> io::Result<()> {
    let deadline = Instant::now() + timeout;
    let answer = read_request(socket, deadline)?;
    let page = matches!(answer, HttpResponse::Page { .. })
        .then(page)
        .transpose()?;
    let (body, content_type) = match &page {
        Some(page) => (page.text(), CONTENT_TYPE),
        None => (
            "Metrics for Prometheus are at /metrics.\n",
            "text/plain; charset=utf-8",
        ),
    };
    let allow = match answer {
        HttpResponse::OnlyGet => "Allow: GET, HEAD\r\n",
        _ => "",
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {answer}\r\nContent-Type: {content_type}\r\nContent-Length: \
         {length}\r\n{allow}Connection: close\r\n\r\n"
    );
    write_all(socket, head.as_bytes(), deadline)?;
    if answer != (HttpResponse::Page { with_body: false }) {
        write_all(socket, body.as_bytes(), deadline)?;
    }
    drop(page);
    linger(socket, deadline)
}

/// Reads until the end of the head of a request.
fn read_request(socket: &mut TcpStream, deadline: Instant) -> io::Result<HttpResponse> {
    let mut request = Vec::new();
    loop {
        let mut piece = [0; 1_024];
        socket.set_read_timeout(Some(left(deadline)?))?;
        let count = socket.read(&mut piece)?;
        request.extend_from_slice(&piece[..count]);
        if request.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
            return Ok(answer_to(&request));
        }
        if request.len() > METRICS_REQUEST_BYTES {
            return Ok(HttpResponse::TooLong);
        }
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn answer_to(request: &[u8]) -> HttpResponse {
    let line = request.split(|&byte| byte == b'\r').next();
    let line = line.and_then(|line| std::str::from_utf8(line).ok());
    let mut words = line.unwrap_or_default().split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (method, target, version, words.next())
    else {
        return HttpResponse::NotHttp;
    };
    let path = target.split('?').next().unwrap_or_default();
    match (method, path) {
        ("GET", "/metrics") => HttpResponse::Page { with_body: true },
        ("HEAD", "/metrics") => HttpResponse::Page { with_body: false },
        ("GET", "/") => HttpResponse::Index,
        ("GET" | "HEAD", _) => HttpResponse::NotFound,
        _ => HttpResponse::OnlyGet,
    }
}

fn write_all(socket: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        socket.set_write_timeout(Some(left(deadline)?))?;
        match socket.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => bytes = &bytes[count..],
        }
    }
    Ok(())
}

/// Closing with something unread would reset the connection, and the answer might be lost: waits
/// for the peer's end.
fn linger(socket: &mut TcpStream, deadline: Instant) -> io::Result<()> {
    socket.shutdown(Shutdown::Write)?;
    let mut ignored = 0;
    while ignored <= METRICS_REQUEST_BYTES {
        let mut piece = [0; 1_024];
        socket.set_read_timeout(Some(left(deadline)?))?;
        match socket.read(&mut piece)? {
            0 => return Ok(()),
            count => ignored += count,
        }
    }
    Ok(())
}

/// The time until the deadline, which is not over.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long enough for any machine; nobody waits for it.
    const LONG: Duration = Duration::from_secs(60);

    fn endpoint(timeout: Duration) -> Endpoint {
        endpoint_with(Arc::new(|| "a_metric 1\n".into()), timeout)
    }

    fn endpoint_with(render: Render, timeout: Duration) -> Endpoint {
        let address = "0".parse().expect("a port");
        let bound = BoundEndpoint::bind(&address).expect("a port is free");
        assert!(bound.address().ip().is_loopback());
        bound.serve(render, timeout).expect("threads can be had")
    }

    fn ask(endpoint: &Endpoint, request: &[u8]) -> String {
        let mut socket = TcpStream::connect(endpoint.bound.address()).expect("it listens");
        socket.write_all(request).expect("it reads");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("it answers");
        answer
    }

    #[test]
    fn requests_are_answered() {
        let endpoint = endpoint(LONG);
        for (request, status, end) in [
            (
                "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
                "200",
                "\r\n\r\na_metric 1\n",
            ),
            (
                "GET /metrics?x=1 HTTP/1.0\r\n\r\n",
                "200",
                "\r\n\r\na_metric 1\n",
            ),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", "200", "close\r\n\r\n"),
            ("GET / HTTP/1.1\r\n\r\n", "200", "/metrics.\n"),
            ("GET /other HTTP/1.1\r\n\r\n", "404", "/metrics.\n"),
            (
                "POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
                "405",
                "/metrics.\n",
            ),
            ("\r\n\r\n", "400", "/metrics.\n"),
            ("GET /metrics HTTP/2.0\r\n\r\n", "400", "/metrics.\n"),
            ("GET /metrics HTTP/1.1 more\r\n\r\n", "400", "/metrics.\n"),
        ] {
            let answer = ask(&endpoint, request.as_bytes());
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{request}{answer}"
            );
            assert!(answer.ends_with(end), "{request}{answer}");
        }
        let head = ask(&endpoint, b"HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(
            head.contains("Content-Length: 11\r\n"),
            "that of GET: {head}"
        );
    }

    #[test]
    fn a_request_has_a_greatest_length() {
        let endpoint = endpoint(LONG);
        let request = vec![b'x'; METRICS_REQUEST_BYTES + 1];
        assert!(ask(&endpoint, &request).starts_with("HTTP/1.1 431 "));
        let header = "y".repeat(METRICS_REQUEST_BYTES / 2);
        let request = format!("GET /metrics HTTP/1.1\r\nX: {header}\r\n\r\n");
        assert!(ask(&endpoint, request.as_bytes()).starts_with("HTTP/1.1 200 "));
    }

    /// As many as there may be are opened and left, one of them in the middle of a request: the
    /// deadline frees them.
    #[test]
    fn connections_that_are_left_do_not_stay() {
        let endpoint = endpoint(Duration::from_millis(200));
        let mut left: Vec<_> = (0..METRICS_CONNECTIONS)
            .map(|_| TcpStream::connect(endpoint.bound.address()).expect("it listens"))
            .collect();
        left[0].write_all(b"GET /met").expect("it reads");
        assert!(ask(&endpoint, b"GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
        for mut socket in left {
            let mut rest = Vec::new();
            let read = socket.read_to_end(&mut rest);
            assert!(read.is_err() || rest.is_empty(), "closed without an answer");
        }
    }

    /// Some that say nothing, some in the middle of a request, some that do not read their answer,
    /// twice as many as there may be: nobody else waits for their deadline, which is never.
    #[test]
    fn slow_scrapers_hold_up_nobody() {
        let endpoint = endpoint(Duration::from_secs(3_600));
        let mut slow = Vec::new();
        for number in 0..2 * METRICS_CONNECTIONS {
            let mut socket = TcpStream::connect(endpoint.bound.address()).expect("it listens");
            let said: &[u8] = match number % 3 {
                0 => b"",
                1 => b"GET /met",
                _ => b"GET /metrics HTTP/1.1\r\n\r\n",
            };
            socket.write_all(said).expect("it reads");
            slow.push(socket);
            if number % 8 == 7 {
                let answer = ask(&endpoint, b"GET /metrics HTTP/1.1\r\n\r\n");
                assert!(answer.ends_with("a_metric 1\n"), "{answer}");
            }
        }
        let open = endpoint.scrapers.open().connections.len();
        assert!(open <= METRICS_CONNECTIONS, "{open}");
        // The first of them was closed to make room.
        let mut first = slow.swap_remove(0);
        let read = first.read(&mut [0]);
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
        let scrapers = Arc::clone(&endpoint.scrapers);
        drop(endpoint);
        let open = scrapers.open();
        assert_eq!(
            (open.connections.len(), open.threads, open.unread_bytes),
            (0, 0, 0)
        );
    }

    #[test]
    fn scrapers_have_a_share_of_few_descriptors_and_a_bound_of_many() {
        for (descriptors, most) in [
            (Some(0), 2),
            (Some(64), 2),
            (Some(1_024), 32),
            (Some(4_096), METRICS_CONNECTIONS),
            (Some(u64::MAX), METRICS_CONNECTIONS),
            (None, METRICS_CONNECTIONS),
        ] {
            assert_eq!(max_connections(descriptors), most, "{descriptors:?}");
        }
    }

    /// All who ask while a page is made share the next one, also when most of them are gone by
    /// then; and all of it once more.
    #[test]
    fn a_crowd_of_scrapers_costs_as_much_as_two() {
        let (begin, begun) = std::sync::mpsc::channel();
        let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
        let may_go_on = Mutex::new(may_go_on);
        let render = move || {
            begin.send(()).expect("the test waits");
            may_go_on
                .lock()
                .expect("no panic")
                .recv()
                .expect("the test goes on");
            "a_metric 1\n".to_owned()
        };
        let endpoint = endpoint_with(Arc::new(render), LONG);
        let waiting = || endpoint.scrapers.renderings().waiting;
        for _ in 0..2 {
            let ask = || {
                let mut socket = TcpStream::connect(endpoint.bound.address()).expect("it listens");
                socket
                    .write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
                    .expect("it reads");
                socket
            };
            let mut crowd = vec![ask()];
            begun.recv().expect("the first one makes it");
            crowd.extend((0..20).map(|_| ask()));
            while waiting() < 21 {
                thread::sleep(Duration::from_millis(1));
            }
            let honest = crowd.pop();
            crowd.truncate(1);
            for _ in 0..2 {
                go_on.send(()).expect("somebody makes a page");
            }
            begun.recv().expect("the second one is made");
            for mut socket in crowd.into_iter().chain(honest) {
                let mut answer = String::new();
                socket.read_to_string(&mut answer).expect("it answers");
                assert!(answer.ends_with("a_metric 1\n"), "{answer}");
            }
            while endpoint.scrapers.open().threads > 0 {
                thread::sleep(Duration::from_millis(1));
            }
            assert!(begun.try_recv().is_err(), "no third page is made");
            assert_eq!((waiting(), endpoint.scrapers.open().unread_bytes), (0, 0));
        }
    }

    /// A scraper that has its page, and the first byte of the answer.
    fn begin_to_read(endpoint: &Endpoint) -> TcpStream {
        let mut socket = TcpStream::connect(endpoint.bound.address()).expect("it listens");
        socket
            .write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
            .expect("it reads");
        socket.read_exact(&mut [0]).expect("it answers");
        socket
    }

    /// Scrapers that do not read pages of some megabytes: what is kept for them all has a bound,
    /// whoever reads gets a whole page, and everything is given back; and all of it once more.
    #[test]
    fn pages_that_nobody_reads_have_a_bound() {
        // More than the system takes for a connection.
        const PAGE_BYTES: usize = METRICS_UNREAD_BYTES - 1;
        let endpoint = endpoint_with(Arc::new(|| "x".repeat(PAGE_BYTES)), LONG);
        let unread_bytes = || endpoint.scrapers.open().unread_bytes;
        let wait_until_all_is_given_back = || {
            let deadline = Instant::now() + LONG;
            while unread_bytes() != 0 {
                assert!(Instant::now() < deadline, "{}", unread_bytes());
                thread::sleep(Duration::from_millis(1));
            }
        };
        for _ in 0..2 {
            let mut slow = Vec::new();
            for count in 1..=5 {
                slow.push(begin_to_read(&endpoint));
                // Less than two where one was closed whose bytes are given back a moment later.
                let kept = PAGE_BYTES..=PAGE_BYTES * count.min(2);
                assert!(kept.contains(&unread_bytes()), "{count}");
            }
            let answer = ask(&endpoint, b"GET /metrics HTTP/1.1\r\n\r\n");
            assert_eq!(
                answer.split("\r\n\r\n").nth(1).map(str::len),
                Some(PAGE_BYTES)
            );
            drop(slow);
            wait_until_all_is_given_back();
            // Whoever has read its page and stays is not closed for the room, which would give
            // nothing back.
            let mut stays = begin_to_read(&endpoint);
            stays.read_to_end(&mut Vec::new()).expect("it answers");
            let slow = [(); 3].map(|()| begin_to_read(&endpoint));
            {
                let open = endpoint.scrapers.open();
                assert!((PAGE_BYTES..=2 * PAGE_BYTES).contains(&open.unread_bytes));
                // Those that do not read, and the one that stays.
                assert!(open.connections.len() > open.unread_bytes / PAGE_BYTES);
            }
            drop((stays, slow));
            wait_until_all_is_given_back();
        }
    }

    #[test]
    fn the_port_is_free_when_it_has_ended() {
        let endpoint = endpoint(LONG);
        let address = endpoint.bound.address();
        drop(endpoint);
        assert!(TcpStream::connect(address).is_err());
    }
}
