//! Calls of `tkrzw_rpc.DBMService`.

use api::tkrzw::{
    BytesPair, ECHO, EchoRequest, EchoResponse, GET, GET_MULTI, GetMultiRequest, GetMultiResponse,
    GetRequest, GetResponse, SET, SET_MULTI, STREAM, SetMultiRequest, SetMultiResponse, SetRequest,
    SetResponse, StatusProto, StreamRequest, StreamResponse, StreamedRequest, StreamedResponse,
};
use protobuf::writer;

use super::Workload;
use crate::keys::{Distribution, KeyChooser};
use crate::limits;
use crate::random::Random;
use crate::stream_plan::StreamPlan;
use crate::verdict::Verdict;

/// Codes of the field `status`: it was done, and there is no such record.
const SUCCESS: i32 = 0;
const NOT_FOUND: i32 = 7;

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TkrzwOperation {
    /// A message comes back.
    Echo,
    /// Records are read.
    Get,
    /// Records are stored, over those that are there.
    Set,
}

/// How it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TkrzwShape {
    /// A call for each operation.
    Single,
    /// A call for so many operations, of the methods for several records.
    Multi(usize),
    /// A stream on each connection, with a response to each message.
    Stream,
    /// Streams of so many messages each, none of which has a response.
    Unanswered(u64),
}

/// A load of Tkrzw-RPC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TkrzwLoad {
    /// What is called.
    pub operation: TkrzwOperation,
    /// How.
    pub shape: TkrzwShape,
    /// The database: its place in the server's list.
    pub database: i32,
    /// Keys: numbers from 0, in decimal digits.
    pub keys: u64,
    /// Digits of a key.
    pub key_bytes: usize,
    /// Bytes of a value, or of the message of an Echo.
    pub value_bytes: usize,
    /// How keys are chosen.
    pub distribution: Distribution,
}

impl TkrzwLoad {
    /// Why there can be no such load, in the flags of the command line.
    pub fn problem(&self) -> Option<String> {
        let is_echo = self.operation == TkrzwOperation::Echo;
        if is_echo && matches!(self.shape, TkrzwShape::Multi(_)) {
            return Some("--records goes only with --operation get and set".into());
        }
        if let TkrzwShape::Multi(records) = self.shape {
            let bytes = records.saturating_mul(self.key_bytes.saturating_add(self.value_bytes));
            if bytes > limits::MAX_GRPC_MESSAGE_BYTES {
                return Some(format!(
                    "{records} --records of {} bytes do not fit into a message of gRPC; take fewer \
                     of them, or a smaller --value-size",
                    self.key_bytes + self.value_bytes
                ));
            }
        }
        let fits = |digits: u32| self.keys <= 10_u64.saturating_pow(digits);
        let digits = u32::try_from(self.key_bytes).unwrap_or(u32::MAX);
        (!is_echo && !fits(digits)).then(|| {
            format!(
                "{} keys do not fit into {} digits; take fewer --keys or a larger --key-size",
                self.keys, self.key_bytes
            )
        })
    }

    /// The load that stores every key once, so many in a call.
    pub fn fill(&self, records: usize) -> TkrzwLoad {
        TkrzwLoad {
            operation: TkrzwOperation::Set,
            shape: TkrzwShape::Multi(records),
            distribution: Distribution::Sequential,
            ..*self
        }
    }

    /// Operations of one call or message, which are records where they are not Echoes.
    pub fn operations_per_call(&self) -> u64 {
        match self.shape {
            TkrzwShape::Single | TkrzwShape::Stream => 1,
            TkrzwShape::Multi(records) => records as u64,
            TkrzwShape::Unanswered(messages) => messages,
        }
    }

    fn method(&self) -> api::Method {
        match (self.shape, self.operation) {
            (TkrzwShape::Stream | TkrzwShape::Unanswered(_), _) => STREAM,
            (_, TkrzwOperation::Echo) => ECHO,
            (TkrzwShape::Single, TkrzwOperation::Get) => GET,
            (TkrzwShape::Single, TkrzwOperation::Set) => SET,
            (TkrzwShape::Multi(_), TkrzwOperation::Get) => GET_MULTI,
            (TkrzwShape::Multi(_), TkrzwOperation::Set) => SET_MULTI,
        }
    }
}

/// The calls of one thread.
#[derive(Clone, Debug)]
pub struct TkrzwWorkload {
    load: TkrzwLoad,
    chooser: KeyChooser,
    random: Random,
    key: Vec<u8>,
    /// Of letters, so that it is also a message of an Echo.
    value: String,
}

impl TkrzwWorkload {
    /// `thread`: its number, and how many there are.
    pub fn new(load: TkrzwLoad, seed: u64, thread: (usize, usize)) -> TkrzwWorkload {
        TkrzwWorkload {
            chooser: KeyChooser::new(load.distribution, load.keys, thread.0, thread.1),
            random: Random::of_thread(seed, thread.0),
            key: Vec::new(),
            value: "v".repeat(load.value_bytes),
            load,
        }
    }

    /// Writes the next key: the digits of a number.
    #[inline]
    fn next_key(&mut self) {
        let mut number = self.chooser.next(&mut self.random, 0);
        self.key.clear();
        self.key.resize(self.load.key_bytes, b'0');
        for digit in self.key.iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
    }

    fn set(&self) -> SetRequest<'_> {
        SetRequest {
            dbm_index: self.load.database,
            key: &self.key,
            value: self.value.as_bytes(),
            overwrite: true,
        }
    }

    fn get(&self) -> GetRequest<'_> {
        GetRequest {
            dbm_index: self.load.database,
            key: &self.key,
            omit_value: false,
        }
    }

    fn echo(&self) -> EchoRequest<'_> {
        EchoRequest {
            message: &self.value,
        }
    }

    fn encode_multi(&mut self, records: usize, out: &mut Vec<u8>) {
        let dbm_index = self.load.database;
        let is_get = self.load.operation == TkrzwOperation::Get;
        match is_get {
            true => GetMultiRequest {
                dbm_index,
                ..GetMultiRequest::default()
            }
            .encode(out),
            false => SetMultiRequest {
                dbm_index,
                overwrite: true,
                ..SetMultiRequest::default()
            }
            .encode(out),
        }
        for _ in 0..records {
            self.next_key();
            if is_get {
                writer::bytes(out, GetMultiRequest::NUMBERS.keys, &self.key);
                continue;
            }
            let record = BytesPair {
                first: &self.key,
                second: self.value.as_bytes(),
            };
            let records = SetMultiRequest::NUMBERS.records;
            writer::message(out, records, |out| record.encode(out));
        }
    }

    fn encode_streamed(&mut self, omit_response: bool, out: &mut Vec<u8>) {
        self.next_key();
        let request = match self.load.operation {
            TkrzwOperation::Echo => StreamedRequest::Echo(self.echo()),
            TkrzwOperation::Get => StreamedRequest::Get(self.get()),
            TkrzwOperation::Set => StreamedRequest::Set(self.set()),
        };
        StreamRequest {
            omit_response,
            request_oneof: Some(request),
        }
        .encode(out);
    }

    fn encode_single(&mut self, out: &mut Vec<u8>) {
        self.next_key();
        match self.load.operation {
            TkrzwOperation::Echo => self.echo().encode(out),
            TkrzwOperation::Get => self.get().encode(out),
            TkrzwOperation::Set => self.set().encode(out),
        }
    }

    fn judge_echo(&self, response: &EchoResponse<'_>) -> Verdict {
        match verdict_of(response.status) {
            Verdict::Good if response.echo != self.value => Verdict::Wrong,
            verdict => verdict,
        }
    }

    fn judge_streamed(&self, answer: &[u8]) -> Verdict {
        let decoded = StreamResponse::decode(answer);
        match decoded.ok().and_then(|response| response.response_oneof) {
            Some(StreamedResponse::Echo(echo)) => self.judge_echo(&echo),
            Some(StreamedResponse::Get(get)) => verdict_of(get.status),
            Some(StreamedResponse::Set(set)) => verdict_of(set.status),
            _ => Verdict::Unreadable,
        }
    }

    fn judge_single(&self, answer: &[u8]) -> Verdict {
        let verdict = match self.load.operation {
            TkrzwOperation::Echo => EchoResponse::decode(answer).map(|echo| self.judge_echo(&echo)),
            TkrzwOperation::Get => GetResponse::decode(answer).map(|get| verdict_of(get.status)),
            TkrzwOperation::Set => SetResponse::decode(answer).map(|set| verdict_of(set.status)),
        };
        verdict.unwrap_or(Verdict::Unreadable)
    }

    fn judge_multi(&self, answer: &[u8]) -> Verdict {
        let verdict = match self.load.operation {
            TkrzwOperation::Get => {
                GetMultiResponse::decode(answer).map(|get| verdict_of(get.status))
            }
            _ => SetMultiResponse::decode(answer).map(|set| verdict_of(set.status)),
        };
        verdict.unwrap_or(Verdict::Unreadable)
    }

    fn status_of_single<'a>(&self, answer: &'a [u8]) -> Option<StatusProto<'a>> {
        match self.load.operation {
            TkrzwOperation::Echo => EchoResponse::decode(answer).ok()?.status,
            TkrzwOperation::Get => GetResponse::decode(answer).ok()?.status,
            TkrzwOperation::Set => SetResponse::decode(answer).ok()?.status,
        }
    }

    fn status_of_multi<'a>(&self, answer: &'a [u8]) -> Option<StatusProto<'a>> {
        match self.load.operation {
            TkrzwOperation::Get => GetMultiResponse::decode(answer).ok()?.status,
            _ => SetMultiResponse::decode(answer).ok()?.status,
        }
    }
}

fn status_of_streamed(answer: &[u8]) -> Option<StatusProto<'_>> {
    match StreamResponse::decode(answer).ok()?.response_oneof? {
        StreamedResponse::Echo(echo) => echo.status,
        StreamedResponse::Get(get) => get.status,
        StreamedResponse::Set(set) => set.status,
        _ => None,
    }
}

/// The status of a response that was not taken for a success, in its own words.
fn refusal_of(status: Option<StatusProto<'_>>) -> Option<String> {
    let StatusProto { code, message } = status?;
    let shown: String = message.chars().take(limits::SHOWN_REASON_CHARS).collect();
    (code != SUCCESS).then(|| format!("status {code} of Tkrzw: {shown}"))
}

/// What the status of a response says; one that is not there is a success, as all its fields are 0.
fn verdict_of(status: Option<StatusProto<'_>>) -> Verdict {
    match status.unwrap_or_default().code {
        SUCCESS => Verdict::Good,
        NOT_FOUND => Verdict::Miss,
        _ => Verdict::NoEffect,
    }
}

impl Workload for TkrzwWorkload {
    fn paths(&self) -> Vec<String> {
        vec![format!("/{}", self.load.method().path)]
    }

    fn is_pipe(&self) -> bool {
        self.load.shape == TkrzwShape::Stream
    }

    fn streaming(&self) -> Option<StreamPlan> {
        match self.load.shape {
            TkrzwShape::Unanswered(requests) => Some(StreamPlan::Unanswered { requests }),
            TkrzwShape::Single | TkrzwShape::Multi(_) | TkrzwShape::Stream => None,
        }
    }

    fn choose(&mut self) -> usize {
        0
    }

    fn encode(&mut self, out: &mut Vec<u8>) {
        match self.load.shape {
            TkrzwShape::Single => self.encode_single(out),
            TkrzwShape::Multi(records) => self.encode_multi(records, out),
            TkrzwShape::Stream => self.encode_streamed(false, out),
            TkrzwShape::Unanswered(_) => self.encode_streamed(true, out),
        }
    }

    fn is_large(&self) -> bool {
        let record = self.load.key_bytes + self.load.value_bytes;
        let records = match self.load.shape {
            TkrzwShape::Multi(records) => records,
            TkrzwShape::Single | TkrzwShape::Stream | TkrzwShape::Unanswered(_) => 1,
        };
        record.saturating_mul(records) >= limits::SHARED_FROM_BYTES
    }

    fn judge(&self, _kind: usize, _ticket: u32, answer: &[u8]) -> Verdict {
        match self.load.shape {
            TkrzwShape::Single => self.judge_single(answer),
            TkrzwShape::Multi(_) => self.judge_multi(answer),
            TkrzwShape::Stream | TkrzwShape::Unanswered(_) => self.judge_streamed(answer),
        }
    }

    fn refusal(&self, _kind: usize, answer: &[u8]) -> Option<String> {
        refusal_of(match self.load.shape {
            TkrzwShape::Single => self.status_of_single(answer),
            TkrzwShape::Multi(_) => self.status_of_multi(answer),
            TkrzwShape::Stream | TkrzwShape::Unanswered(_) => status_of_streamed(answer),
        })
    }

    fn records_per_call(&self) -> u64 {
        self.load.operations_per_call()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(operation: TkrzwOperation, shape: TkrzwShape) -> TkrzwLoad {
        TkrzwLoad {
            operation,
            shape,
            database: 2,
            keys: 1_000,
            key_bytes: 8,
            value_bytes: 5,
            distribution: Distribution::Sequential,
        }
    }

    fn workload(operation: TkrzwOperation, shape: TkrzwShape) -> TkrzwWorkload {
        TkrzwWorkload::new(load(operation, shape), 1, (0, 1))
    }

    fn encoded(workload: &mut TkrzwWorkload) -> Vec<u8> {
        let mut out = Vec::new();
        workload.choose();
        workload.encode(&mut out);
        out
    }

    #[test]
    fn keys_are_numbers_in_digits_one_after_the_other() {
        let mut set = workload(TkrzwOperation::Set, TkrzwShape::Single);
        assert_eq!(set.paths(), ["/tkrzw_rpc.DBMService/Set"]);
        for key in ["00000000", "00000001", "00000002"] {
            let bytes = encoded(&mut set);
            let request = SetRequest::decode(&bytes).expect("it is one");
            assert_eq!(request.key, key.as_bytes());
            assert_eq!((request.value, request.dbm_index), (&b"vvvvv"[..], 2));
            assert!(request.overwrite);
        }
    }

    #[test]
    fn several_records_go_in_one_request() {
        let mut set = workload(TkrzwOperation::Set, TkrzwShape::Multi(3));
        let bytes = encoded(&mut set);
        let request = SetMultiRequest::decode(&bytes).expect("it is one");
        let records = request.records.iter().flatten();
        let keys: Vec<&[u8]> = records.map(|record| record.first).collect();
        assert_eq!(keys, [b"00000000", b"00000001", b"00000002"]);
        assert!(request.overwrite && request.dbm_index == 2);
        let mut get = workload(TkrzwOperation::Get, TkrzwShape::Multi(2));
        let bytes = encoded(&mut get);
        let request = GetMultiRequest::decode(&bytes).expect("it is one");
        assert_eq!(request.keys.iter().count(), 2);
        assert_eq!(get.paths(), ["/tkrzw_rpc.DBMService/GetMulti"]);
        assert_eq!(get.records_per_call(), 2);
    }

    #[test]
    fn messages_of_a_stream_say_whether_they_want_a_response() {
        for (shape, omits) in [
            (TkrzwShape::Stream, false),
            (TkrzwShape::Unanswered(7), true),
        ] {
            let mut stream = workload(TkrzwOperation::Set, shape);
            assert_eq!(stream.paths(), ["/tkrzw_rpc.DBMService/Stream"]);
            let bytes = encoded(&mut stream);
            let request = StreamRequest::decode(&bytes).expect("it is one");
            assert_eq!(request.omit_response, omits);
            assert!(matches!(
                request.request_oneof,
                Some(StreamedRequest::Set(set)) if set.key == b"00000000"
            ));
            assert_eq!(
                (stream.is_pipe(), stream.streaming().is_some()),
                (!omits, omits)
            );
        }
    }

    #[test]
    fn responses_are_judged_by_their_status() {
        let message = "full";
        let status = |code| Some(StatusProto { code, message });
        let get = workload(TkrzwOperation::Get, TkrzwShape::Single);
        for (code, verdict) in [
            (0, Verdict::Good),
            (7, Verdict::Miss),
            (4, Verdict::NoEffect),
        ] {
            let mut bytes = Vec::new();
            let response = GetResponse {
                status: status(code),
                value: b"x",
            };
            response.encode(&mut bytes);
            assert_eq!(get.judge(0, 0, &bytes), verdict);
            let words = (code != 0).then(|| format!("status {code} of Tkrzw: full"));
            assert_eq!(get.refusal(0, &bytes), words);
            let stream = workload(TkrzwOperation::Get, TkrzwShape::Stream);
            let mut bytes = Vec::new();
            StreamResponse {
                response_oneof: Some(StreamedResponse::Get(response)),
            }
            .encode(&mut bytes);
            assert_eq!(stream.judge(0, 0, &bytes), verdict);
            assert_eq!(stream.refusal(0, &bytes), words);
            assert_eq!(stream.refusal(0, b""), None);
            assert_eq!(stream.judge(0, 0, b""), Verdict::Unreadable);
        }
        let multi = workload(TkrzwOperation::Set, TkrzwShape::Multi(2));
        assert_eq!(multi.judge(0, 0, b""), Verdict::Good, "as it is encoded");
        assert_eq!(multi.judge(0, 0, b"\xff"), Verdict::Unreadable);
        assert_eq!(multi.refusal(0, b"\xff"), None);
        let message = "m".repeat(limits::SHOWN_REASON_CHARS + 1);
        let long = SetMultiResponse {
            status: Some(StatusProto {
                code: 4,
                message: &message,
            }),
        };
        let mut bytes = Vec::new();
        long.encode(&mut bytes);
        let said = multi.refusal(0, &bytes).expect("it says why");
        assert!(
            said.len() < message.len() + 20 && said.ends_with('m'),
            "{said}"
        );
    }

    #[test]
    fn an_echo_has_to_be_what_was_sent() {
        let echo = workload(TkrzwOperation::Echo, TkrzwShape::Single);
        for (text, verdict) in [("vvvvv", Verdict::Good), ("other", Verdict::Wrong)] {
            let mut bytes = Vec::new();
            EchoResponse {
                status: None,
                echo: text,
            }
            .encode(&mut bytes);
            assert_eq!(echo.judge(0, 0, &bytes), verdict);
        }
    }

    #[test]
    fn what_cannot_be_is_told() {
        let fine = load(TkrzwOperation::Set, TkrzwShape::Single);
        assert_eq!(fine.problem(), None);
        let batch = load(TkrzwOperation::Echo, TkrzwShape::Multi(2));
        assert!(
            batch
                .problem()
                .is_some_and(|text| text.contains("--records"))
        );
        let many = TkrzwLoad {
            keys: 100,
            key_bytes: 2,
            ..fine
        };
        assert_eq!(many.problem(), None);
        let many = TkrzwLoad { keys: 101, ..many };
        assert!(many.problem().is_some_and(|text| text.contains("2 digits")));
        let long = TkrzwLoad {
            key_bytes: 60_000,
            ..fine
        };
        assert_eq!(long.problem(), None);
        // 256 records of 16 MiB are 4 GiB, and their keys.
        let large = TkrzwLoad {
            shape: TkrzwShape::Multi(256),
            value_bytes: 16 << 20,
            ..fine
        };
        assert!(
            large
                .problem()
                .is_some_and(|text| text.contains("--records"))
        );
        let large = TkrzwLoad {
            shape: TkrzwShape::Multi(255),
            ..large
        };
        assert_eq!(large.problem(), None);
    }

    #[test]
    fn filling_stores_every_key_once() {
        let fill = load(TkrzwOperation::Get, TkrzwShape::Stream).fill(100);
        let mut keys = std::collections::BTreeSet::new();
        let mut workload = TkrzwWorkload::new(fill, 0, (0, 1));
        for _ in 0..10 {
            let bytes = encoded(&mut workload);
            let request = SetMultiRequest::decode(&bytes).expect("it is one");
            let records = request.records.iter().flatten();
            keys.extend(records.map(|record| record.first.to_vec()));
        }
        assert_eq!(keys.len(), 1_000);
    }
}
