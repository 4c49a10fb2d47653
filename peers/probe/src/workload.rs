//! What is called, with which keys and values, and what the answers must look like.
//!
//! Messages are those of `pelton.v1.KeyValue` (`proto/pelton/v1/kv.proto`), written field by field;
//! a Put can also be one of etcd's (`etcdserverpb.KV`), and there are calls of Tkrzw-RPC
//! (`proto/compat/tkrzw_rpc.proto`).

use crate::frames::{write_bytes_field, write_varint};
use crate::head::write_hex;
use crate::random::{Random, spread};

/// Bytes of a key: a number spread over 64 bits, in hexadecimal. Every key has its number, so no
/// table of keys is needed.
const KEY_BYTES: usize = 16;

/// Which values keys have.
#[derive(Clone, Copy, Debug)]
pub struct ValueSizes {
    /// The smallest, in bytes.
    pub min: u64,
    /// The largest, in bytes.
    pub max: u64,
}

impl ValueSizes {
    /// The bytes of the value of key `number`: always the same for one key, evenly spread between
    /// `min` and `max`.
    fn of(self, number: u64) -> usize {
        (self.min + spread(!number) % (self.max - self.min + 1)) as usize
    }
}

/// How numbers become keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// Spread over 64 bits, in hexadecimal: 16 bytes.
    Hex,
    /// Eight decimal digits, so that numbers in order are keys in order.
    Digits,
    /// Spread over 64 bits: 8 bytes.
    Spread,
}

/// What one call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads a key taken at random.
    Get,
    /// Writes the keys in turn.
    Put,
    /// The same, as etcd takes it.
    EtcdPut,
    /// Writes so many keys taken at random in one Batch.
    BatchOverwrite {
        /// Operations of one call.
        records: u64,
    },
    /// Writes so many keys that were never written before in one Batch.
    BatchInsert {
        /// Operations of one call.
        records: u64,
    },
    /// Has a few bytes sent back by Tkrzw-RPC.
    TkrzwEcho,
    /// Writes the keys in turn, as Tkrzw-RPC takes them.
    TkrzwSet,
    /// The same, so many of them in one SetMulti.
    TkrzwSetMulti {
        /// Records of one call.
        records: u64,
    },
}

/// The field of a request of a stream that has a Set, and the one that wants no response.
const STREAMED_SET: u8 = 3;
const OMIT_RESPONSE: [u8; 3] = [0xa8, 0x06, 1];

/// The calls of one run.
pub struct Workload {
    /// What each call does.
    pub operation: Operation,
    /// Keys are numbered from 0 to `keys` - 1.
    pub keys: u64,
    /// Of 100 calls of Get so many ask for a key that is not there.
    pub miss_percent: u64,
    /// The values written, and expected by Get.
    pub values: ValueSizes,
    /// Which keys calls of Tkrzw-RPC write.
    pub key_form: KeyForm,
    random: Random,
    next_key: u64,
    filler: Vec<u8>,
    record: Vec<u8>,
}

impl Workload {
    /// Calls that are the same for the same seed.
    pub fn new(
        operation: Operation,
        keys: u64,
        miss_percent: u64,
        values: ValueSizes,
        seed: u64,
    ) -> Workload {
        Workload {
            operation,
            keys,
            miss_percent,
            values,
            key_form: KeyForm::Hex,
            random: Random::new(seed),
            // New keys lie above all that a Put of all keys wrote, and differ from run to run.
            next_key: if let Operation::BatchInsert { .. } = operation {
                seed << 40
            } else {
                0
            },
            filler: (0..values.max)
                .map(|index| b'a' + (index % 26) as u8)
                .collect(),
            record: Vec::new(),
        }
    }

    /// Begins with another key.
    pub fn begin_at(&mut self, key: u64, seed: u64) {
        (self.next_key, self.random) = (key, Random::new(seed));
    }

    /// The method called.
    pub fn path(&self) -> &'static str {
        match self.operation {
            Operation::Get => "/pelton.v1.KeyValue/Get",
            Operation::Put => "/pelton.v1.KeyValue/Put",
            Operation::EtcdPut => "/etcdserverpb.KV/Put",
            Operation::BatchOverwrite { .. } | Operation::BatchInsert { .. } => {
                "/pelton.v1.KeyValue/Batch"
            }
            Operation::TkrzwEcho => "/tkrzw_rpc.DBMService/Echo",
            Operation::TkrzwSet => "/tkrzw_rpc.DBMService/Set",
            Operation::TkrzwSetMulti { .. } => "/tkrzw_rpc.DBMService/SetMulti",
        }
    }

    /// Records read or written by one call.
    pub fn records_per_call(&self) -> u64 {
        match self.operation {
            Operation::BatchOverwrite { records }
            | Operation::BatchInsert { records }
            | Operation::TkrzwSetMulti { records } => records,
            _ => 1,
        }
    }

    /// Appends the next call's message.
    pub fn write_message(&mut self, out: &mut Vec<u8>) {
        match self.operation {
            Operation::Get => {
                let mut number = self.random.below(self.keys);
                if self.miss_percent != 0 && self.random.below(100) < self.miss_percent {
                    number |= 1 << 63;
                }
                write_bytes_field(out, 2, &key(number));
            }
            Operation::Put => {
                let number = self.next_in_turn();
                self.write_put(out, number);
            }
            Operation::EtcdPut => {
                let number = self.next_in_turn();
                write_bytes_field(out, 1, &key(number));
                write_bytes_field(out, 2, self.value(number));
            }
            Operation::BatchOverwrite { records } => {
                for _ in 0..records {
                    let number = self.random.below(self.keys);
                    self.write_operation(out, number);
                }
            }
            Operation::BatchInsert { records } => {
                for _ in 0..records {
                    self.next_key += 1;
                    self.write_operation(out, self.next_key);
                }
            }
            Operation::TkrzwEcho => write_bytes_field(out, 1, &self.filler),
            Operation::TkrzwSet => self.write_set(out),
            Operation::TkrzwSetMulti { records } => {
                for _ in 0..records {
                    let number = self.next_in_turn();
                    self.write_record(out, number);
                }
                // It overwrites.
                out.extend_from_slice(&[3 << 3, 1]);
            }
        }
    }

    /// Appends a message of a stream with the next Set.
    pub fn write_streamed(&mut self, out: &mut Vec<u8>, omits_response: bool) {
        let mut set = std::mem::take(&mut self.record);
        set.clear();
        self.write_set(&mut set);
        write_bytes_field(out, STREAMED_SET, &set);
        self.record = set;
        if omits_response {
            out.extend_from_slice(&OMIT_RESPONSE);
        }
    }

    /// Fields of a SetRequest that overwrites.
    fn write_set(&mut self, out: &mut Vec<u8>) {
        let number = self.next_in_turn();
        self.write_key(out, 2, number);
        write_bytes_field(out, 3, self.value(number));
        out.extend_from_slice(&[4 << 3, 1]);
    }

    /// One of SetMultiRequest.records.
    fn write_record(&mut self, out: &mut Vec<u8>, number: u64) {
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        self.write_key(&mut record, 1, number);
        write_bytes_field(&mut record, 2, self.value(number));
        write_bytes_field(out, 2, &record);
        self.record = record;
    }

    fn write_key(&self, out: &mut Vec<u8>, field: u8, number: u64) {
        match self.key_form {
            KeyForm::Hex => write_bytes_field(out, field, &key(number)),
            KeyForm::Digits => {
                let digits = format!("{:08}", number % 100_000_000);
                write_bytes_field(out, field, digits.as_bytes());
            }
            KeyForm::Spread => write_bytes_field(out, field, &spread(number).to_be_bytes()),
        }
    }

    fn next_in_turn(&mut self) -> u64 {
        let number = self.next_key;
        self.next_key = (self.next_key + 1) % self.keys;
        number
    }

    fn value(&self, number: u64) -> &[u8] {
        &self.filler[..self.values.of(number)]
    }

    /// Key and value of a PutRequest or an Operation.Put, which number them alike.
    fn write_put(&self, out: &mut Vec<u8>, number: u64) {
        write_bytes_field(out, 2, &key(number));
        write_bytes_field(out, 3, self.value(number));
    }

    /// One of BatchRequest.operations.
    fn write_operation(&mut self, out: &mut Vec<u8>, number: u64) {
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        self.write_put(&mut record, number);
        let put_head_bytes = 1 + varint_bytes(record.len() as u64);
        out.push(3 << 3 | 2);
        write_varint(out, (put_head_bytes + record.len()) as u64);
        write_bytes_field(out, 2, &record);
        self.record = record;
    }

    /// Whether an answer shows that the call did what it should: false counts as a failed call.
    pub fn accepts(&self, answer: &[u8]) -> bool {
        match self.operation {
            // A hit is `found` (2 bytes), the value with its head (2 bytes or more) and the
            // version; a miss is empty.
            Operation::Get => answer.is_empty() || answer.len() as u64 >= 4 + self.values.min,
            // Its header comes first.
            Operation::EtcdPut => answer.starts_with(&[0x0a]),
            // The status comes first, and is empty.
            Operation::TkrzwEcho | Operation::TkrzwSet | Operation::TkrzwSetMulti { .. } => {
                answer.starts_with(&[0x0a, 0])
            }
            // Both begin with `applied: true`.
            _ => answer.starts_with(&[0x08, 0x01]),
        }
    }
}

fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    write_hex(&mut key, spread(number));
    key
}

fn varint_bytes(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: ValueSizes = ValueSizes { min: 200, max: 200 };

    #[test]
    fn a_batch_is_well_formed_protobuf() {
        let mut workload = Workload::new(Operation::BatchInsert { records: 3 }, 10, 0, SIZES, 1);
        let mut message = Vec::new();
        workload.write_message(&mut message);
        let mut rest = &message[..];
        let mut records = 0;
        while !rest.is_empty() {
            // operations, 3+200+... = 223 bytes, which takes a varint of two bytes; in it put,
            // again two.
            assert_eq!(rest[0], 0x1a);
            let length = usize::from(rest[1] & 0x7f) | usize::from(rest[2]) << 7;
            let operation = &rest[3..3 + length];
            assert_eq!(operation[0], 0x12);
            let put = usize::from(operation[1] & 0x7f) | usize::from(operation[2]) << 7;
            assert_eq!(operation.len(), 3 + put);
            assert_eq!(operation[3..5], [0x12, 16]);
            assert_eq!(operation[21..24], [0x1a, 200 | 0x80, 1]);
            rest = &rest[3 + length..];
            records += 1;
        }
        assert_eq!(records, 3);
    }

    #[test]
    fn varints_are_counted_as_written() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::MAX] {
            let mut out = Vec::new();
            write_varint(&mut out, value);
            assert_eq!(out.len(), varint_bytes(value), "{value}");
        }
    }

    #[test]
    fn value_sizes_stay_in_their_bounds_and_reach_them() {
        let sizes = ValueSizes { min: 1, max: 10 };
        let seen: std::collections::BTreeSet<_> =
            (0..1000).map(|number| sizes.of(number)).collect();
        assert_eq!(seen, (1..=10).collect());
    }
}
