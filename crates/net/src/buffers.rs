//! A loop's buffers: lent to connections that have bytes in hand, given back when they have none.

use std::sync::Arc;

use crate::counters::CounterCells;
use crate::io::{Input, Io};
use crate::limits::{
    INPUT_BUFFER_BYTES, OUTPUT_BUFFER_BYTES, POOL_INPUT_BUFFERS, POOL_OUTPUT_BUFFER_MAX_BYTES,
    POOL_OUTPUT_BUFFERS,
};

/// Free buffers by size, the last returned first (it is still in the CPU's cache).
pub(crate) struct SpareBuffers {
    inputs: [Vec<Vec<u8>>; INPUT_BUFFER_BYTES.len()],
    outputs: Vec<Vec<u8>>,
    counters: Arc<CounterCells>,
}

/// The smallest size for reading: size 0 only holds leftovers.
pub(crate) const FIRST_READ_SIZE: u8 = 1;
/// The largest size.
pub(crate) const LAST_READ_SIZE: u8 = INPUT_BUFFER_BYTES.len() as u8 - 1;

impl SpareBuffers {
    pub(crate) fn new(counters: Arc<CounterCells>) -> SpareBuffers {
        SpareBuffers {
            inputs: Default::default(),
            outputs: Vec::new(),
            counters,
        }
    }

    /// Makes room to read: at least half of `size`'s buffer, and all that is unconsumed before it.
    /// The answer is false if the unconsumed input fills the largest buffer.
    pub(crate) fn make_room(&mut self, input: &mut Input, size: u8) -> bool {
        let mut size = usize::from(size);
        while size + 1 < INPUT_BUFFER_BYTES.len() && input.len() > INPUT_BUFFER_BYTES[size] / 2 {
            size += 1;
        }
        if input.capacity() < INPUT_BUFFER_BYTES[size] {
            let larger = self.take_input(size);
            let smaller = input.replace_buffer(larger);
            self.put_input(smaller);
        } else {
            input.compact();
        }
        !input.room().is_empty()
    }

    /// Makes room for exactly known bytes: those of a record, or of what is to be sealed.
    pub(crate) fn make_room_for(&mut self, queue: &mut Input, count: usize) {
        if queue.capacity() - queue.len() < count {
            let needed = queue.len() + count;
            let size = INPUT_BUFFER_BYTES.iter().position(|&bytes| bytes >= needed);
            let larger = self.take_input(size.unwrap_or(INPUT_BUFFER_BYTES.len() - 1));
            let smaller = queue.replace_buffer(larger);
            self.put_input(smaller);
        }
        queue.reserve(count);
    }

    /// Counts a queue's buffer as lent if the queue has made it itself, which it does for the odd
    /// record of a session.
    pub(crate) fn adopt(&mut self, had_buffer: bool, queue: &Input) {
        if !had_buffer && queue.holds_buffer() {
            self.counters.input_buffers_lent.add(1);
            self.counters.buffers_allocated.add(1);
        }
    }

    /// Takes back what a connection does not need for the bytes it holds.
    pub(crate) fn settle_input(&mut self, input: &mut Input) {
        if !input.holds_buffer() {
            return;
        }
        if input.is_empty() {
            let buffer = input.replace_buffer(Vec::new());
            self.put_input(buffer);
            return;
        }
        let fits = INPUT_BUFFER_BYTES
            .iter()
            .position(|&bytes| bytes >= input.len());
        if let Some(size) = fits
            && INPUT_BUFFER_BYTES[size] < input.capacity()
        {
            let smaller = self.take_input(size);
            let larger = input.replace_buffer(smaller);
            self.put_input(larger);
        }
    }

    /// Lends an output buffer, before a handler may write.
    pub(crate) fn lend_output(&mut self, io: &mut Io) {
        if io.output.capacity() == 0 {
            io.output = self.outputs.pop().unwrap_or_else(|| {
                self.counters.buffers_allocated.add(1);
                Vec::with_capacity(OUTPUT_BUFFER_BYTES)
            });
            self.counters.output_buffers_lent.add(1);
        }
    }

    /// Takes back an output buffer that has nothing left to write.
    pub(crate) fn settle_output(&mut self, io: &mut Io) {
        if io.output.capacity() == 0 || !io.output.is_empty() {
            return;
        }
        self.counters.output_buffers_lent.subtract(1);
        let buffer = std::mem::take(&mut io.output);
        if self.outputs.len() < POOL_OUTPUT_BUFFERS
            && buffer.capacity() <= POOL_OUTPUT_BUFFER_MAX_BYTES
        {
            self.outputs.push(buffer);
        }
    }

    /// Takes back everything from a connection that ends.
    pub(crate) fn take_back(&mut self, io: &mut Io) {
        io.input.consume(io.input.len());
        self.settle_input(&mut io.input);
        io.clear_output();
        self.settle_output(io);
    }

    /// Frees the buffers that nobody has.
    pub(crate) fn free_all(&mut self) {
        self.inputs.iter_mut().for_each(Vec::clear);
        self.outputs.clear();
        self.counters.buffers_pooled.set(0);
    }

    /// Free buffers of all kinds.
    pub(crate) fn pooled(&self) -> usize {
        self.outputs.len() + self.inputs.iter().map(Vec::len).sum::<usize>()
    }

    fn take_input(&mut self, size: usize) -> Vec<u8> {
        self.counters.input_buffers_lent.add(1);
        self.inputs[size].pop().unwrap_or_else(|| {
            self.counters.buffers_allocated.add(1);
            vec![0; INPUT_BUFFER_BYTES[size]]
        })
    }

    /// `buffer` may be the empty one of a connection that held none.
    fn put_input(&mut self, buffer: Vec<u8>) {
        if buffer.is_empty() {
            return;
        }
        self.counters.input_buffers_lent.subtract(1);
        let size = INPUT_BUFFER_BYTES
            .iter()
            .position(|&bytes| bytes == buffer.len());
        // One that a session had to enlarge has another size, and goes.
        if let Some(size) = size
            && self.inputs[size].len() < POOL_INPUT_BUFFERS
        {
            self.inputs[size].push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::INPUT_MAX_BYTES;

    fn pool() -> (SpareBuffers, Arc<CounterCells>) {
        let counters = Arc::new(CounterCells::default());
        (SpareBuffers::new(counters.clone()), counters)
    }

    #[test]
    fn a_leftover_moves_to_the_smallest_buffer_that_holds_it_and_back() {
        let (mut buffers, counters) = pool();
        let mut input = Input::default();
        assert!(buffers.make_room(&mut input, LAST_READ_SIZE));
        assert_eq!(input.capacity(), INPUT_BUFFER_BYTES[2]);
        input.room()[..300].fill(7);
        input.filled(300);
        input.consume(290);
        buffers.settle_input(&mut input);
        assert_eq!(
            (input.capacity(), input.bytes()),
            (INPUT_BUFFER_BYTES[0], &[7; 10][..])
        );
        assert!(buffers.make_room(&mut input, FIRST_READ_SIZE));
        assert_eq!(
            (input.capacity(), input.bytes()),
            (INPUT_BUFFER_BYTES[1], &[7; 10][..])
        );
        assert_eq!(counters.input_buffers_lent.get(), 1);
        input.consume(10);
        buffers.settle_input(&mut input);
        assert!(!input.holds_buffer());
        assert_eq!(counters.input_buffers_lent.get(), 0);
        assert_eq!(buffers.pooled(), 3, "one of each size used");
    }

    #[test]
    fn what_fits_stays_where_it_is() {
        let (mut buffers, counters) = pool();
        let half = INPUT_BUFFER_BYTES[1] / 2;
        let mut input = Input::default();
        for _ in 0..2 {
            assert!(buffers.make_room(&mut input, FIRST_READ_SIZE));
            input.room()[..half].fill(7);
            input.filled(half);
            // The other half is room enough; a byte more, and it is not.
            assert!(buffers.make_room(&mut input, FIRST_READ_SIZE));
            assert_eq!(input.capacity(), INPUT_BUFFER_BYTES[1]);
            input.room()[0] = 8;
            input.filled(1);
            assert!(buffers.make_room(&mut input, FIRST_READ_SIZE));
            assert_eq!(input.capacity(), INPUT_BUFFER_BYTES[2]);
            assert_eq!(input.bytes()[half - 1..], [7, 8]);
            input.consume(half);
            buffers.settle_input(&mut input);
            // The smallest that holds it: nothing is exchanged any more.
            let (allocated, pooled) = (counters.buffers_allocated.get(), buffers.pooled());
            for _ in 0..3 {
                buffers.settle_input(&mut input);
            }
            assert_eq!(input.capacity(), INPUT_BUFFER_BYTES[0]);
            assert_eq!(counters.buffers_allocated.get(), allocated);
            assert_eq!(
                (buffers.pooled(), counters.input_buffers_lent.get()),
                (pooled, 1)
            );
            input.consume(1);
            buffers.settle_input(&mut input);
            assert_eq!(counters.input_buffers_lent.get(), 0);
            buffers.free_all();
            assert_eq!(buffers.pooled(), 0);
        }
    }

    #[test]
    fn a_handler_that_consumes_nothing_gets_room_up_to_the_largest_buffer() {
        let (mut buffers, _) = pool();
        let mut input = Input::default();
        while buffers.make_room(&mut input, FIRST_READ_SIZE) {
            let room = input.room().len();
            input.filled(room);
            buffers.settle_input(&mut input);
        }
        assert_eq!(input.len(), *INPUT_BUFFER_BYTES.last().expect("not empty"));
    }

    #[test]
    fn what_was_consumed_makes_room_again_in_a_full_buffer() {
        let (mut buffers, _) = pool();
        let largest_bytes = INPUT_BUFFER_BYTES[usize::from(LAST_READ_SIZE)];
        let mut input = Input::default();
        for _ in 0..2 {
            while buffers.make_room(&mut input, LAST_READ_SIZE) {
                let room = input.room().len();
                input.filled(room);
            }
            input.consume(largest_bytes - 100);
            assert!(buffers.make_room(&mut input, LAST_READ_SIZE));
            assert_eq!(input.room().len(), largest_bytes - 100);
            assert_eq!(input.len(), 100, "the rest stays");
        }
    }

    #[test]
    fn the_pool_keeps_no_more_than_its_limits() {
        let (mut buffers, counters) = pool();
        let mut connections: Vec<Io> = (0..3 * POOL_OUTPUT_BUFFERS).map(|_| Io::new()).collect();
        for io in &mut connections {
            buffers.lend_output(io);
            assert!(buffers.make_room(&mut io.input, FIRST_READ_SIZE));
            io.output.push(1);
        }
        assert_eq!(
            counters.buffers_allocated.get(),
            6 * POOL_OUTPUT_BUFFERS as u64
        );
        connections.iter_mut().for_each(|io| buffers.take_back(io));
        assert_eq!(buffers.pooled(), POOL_INPUT_BUFFERS + POOL_OUTPUT_BUFFERS);
        assert_eq!(
            counters.output_buffers_lent.get() + counters.input_buffers_lent.get(),
            0
        );
    }

    #[test]
    fn an_output_buffer_that_grew_large_is_freed() {
        let (mut buffers, _) = pool();
        let mut io = Io::new();
        buffers.lend_output(&mut io);
        io.output.resize(POOL_OUTPUT_BUFFER_MAX_BYTES + 1, 0);
        buffers.take_back(&mut io);
        assert_eq!((buffers.pooled(), io.output.capacity()), (0, 0));
    }

    /// For bytes whose number is known before: of a record, or of what is sealed.
    #[test]
    fn a_queue_gets_the_smallest_buffer_that_holds_what_comes_and_keeps_one_that_does() {
        let (mut buffers, counters) = pool();
        for size_bytes in INPUT_BUFFER_BYTES {
            let mut queue = Input::default();
            buffers.make_room_for(&mut queue, size_bytes);
            assert_eq!(queue.capacity(), size_bytes);
            queue.append(&[7; 10]);
            let allocated = counters.buffers_allocated.get();
            buffers.make_room_for(&mut queue, size_bytes - 10);
            assert_eq!(queue.capacity(), size_bytes, "it fits");
            assert_eq!(counters.buffers_allocated.get(), allocated);
            assert!(queue.room().len() >= size_bytes - 10);
            buffers.make_room_for(&mut queue, size_bytes - 9);
            assert!(queue.capacity() > size_bytes, "a byte too many");
            assert!(queue.room().len() >= size_bytes - 9);
            assert_eq!(queue.bytes(), [7; 10]);
            queue.consume(10);
            buffers.settle_input(&mut queue);
            assert_eq!(counters.input_buffers_lent.get(), 0);
        }
        // Beyond the largest the queue grows by itself, and its buffer is not kept.
        let before = buffers.pooled();
        let mut queue = Input::default();
        buffers.make_room_for(&mut queue, 2 * INPUT_MAX_BYTES);
        assert_eq!(queue.capacity(), 2 * INPUT_MAX_BYTES);
        assert_eq!(counters.input_buffers_lent.get(), 1);
        buffers.settle_input(&mut queue);
        assert_eq!(counters.input_buffers_lent.get(), 0);
        assert!(buffers.pooled() < before, "its first buffer has grown");
    }

    #[test]
    fn a_buffer_that_a_queue_has_made_itself_is_counted_once() {
        let (mut buffers, counters) = pool();
        let mut queue = Input::default();
        buffers.adopt(false, &queue);
        assert_eq!(counters.input_buffers_lent.get(), 0, "it has none");
        queue.reserve(100);
        buffers.adopt(true, &queue);
        assert_eq!(
            counters.input_buffers_lent.get(),
            0,
            "it was counted before"
        );
        buffers.adopt(false, &queue);
        assert_eq!(counters.input_buffers_lent.get(), 1);
        assert_eq!(counters.buffers_allocated.get(), 1);
        buffers.settle_input(&mut queue);
        assert_eq!(counters.input_buffers_lent.get(), 0);
    }
}
