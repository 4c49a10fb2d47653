//! What the cases call through: a connection of their own, or a pool that they share.

use std::time::{Duration, Instant};

use client::{
    CallError, CallInfo, CallOptions, Channel, PoolCall, PoolStream, SharedPool, StreamStep,
    Streaming,
};

/// A connection, or a pool.
pub enum Caller {
    Channel(Box<Channel>),
    Pool {
        pool: SharedPool,
        /// Waits by futures, and not in the kernel itself.
        is_async: bool,
        /// Of the last call.
        info: CallInfo,
    },
}

/// A call with many messages.
pub enum CallerStream<'a> {
    Channel(Streaming<'a>),
    Pool {
        stream: PoolStream,
        is_async: bool,
        info: &'a mut CallInfo,
    },
}

fn pool_call<'a>(path: &'a str, options: &CallOptions<'a>) -> PoolCall<'a> {
    let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
    PoolCall {
        path,
        metadata: options.metadata,
        timeout_ns: options.deadline.map(|at| left(at).as_nanos() as u64),
        compress: options.compress,
        wants_head: true,
        ..PoolCall::default()
    }
}

impl Caller {
    pub fn unary(
        &mut self,
        path: &str,
        request: &[u8],
        options: &CallOptions<'_>,
    ) -> Result<Vec<u8>, CallError> {
        match self {
            Caller::Channel(channel) => channel.unary(path, request, options),
            Caller::Pool { pool, is_async, .. } => {
                let call = pool_call(path, options);
                match is_async {
                    false => pool.unary(&call, request),
                    true => pollster::block_on(pool.unary_future(&call, request)),
                }
            }
        }
    }

    /// The same, after which [`Caller::last_call`] is known.
    pub fn unary_with_info(
        &mut self,
        path: &str,
        request: &[u8],
        options: &CallOptions<'_>,
    ) -> Result<Vec<u8>, CallError> {
        if let Caller::Channel(channel) = self {
            return channel.unary(path, request, options);
        }
        let mut stream = self.streaming(path, options)?;
        stream.send(request);
        stream.close_send();
        let mut answer = None;
        loop {
            match (stream.poll(Duration::MAX)?, answer.is_some()) {
                (StreamStep::Message(message), false) => answer = Some(message),
                (StreamStep::Nothing, _) => {}
                (StreamStep::Ended, true) => return Ok(answer.unwrap_or_default()),
                (StreamStep::Message(_) | StreamStep::Ended, _) => {
                    let reason = "it has not one message".into();
                    return Err(CallError::BadAnswer { reason });
                }
            }
        }
    }

    pub fn streaming<'a>(
        &'a mut self,
        path: &str,
        options: &CallOptions<'_>,
    ) -> Result<CallerStream<'a>, CallError> {
        Ok(match self {
            Caller::Channel(channel) => CallerStream::Channel(channel.streaming(path, options)?),
            Caller::Pool {
                pool,
                is_async,
                info,
            } => CallerStream::Pool {
                stream: pool.stream(&pool_call(path, options)),
                is_async: *is_async,
                info,
            },
        })
    }

    pub fn server_streaming(
        &mut self,
        path: &str,
        request: &[u8],
        options: &CallOptions<'_>,
    ) -> Result<Vec<Vec<u8>>, CallError> {
        match self {
            Caller::Channel(channel) => channel.server_streaming(path, request, options)?.collect(),
            Caller::Pool { pool, is_async, .. } => {
                let call = pool_call(path, options);
                let too_large = |error: client::SendError| CallError::BadRequest {
                    reason: error.to_string(),
                };
                let mut stream = pool.server_stream(&call, request).map_err(too_large)?;
                let mut answers = Vec::new();
                while let Some(answer) = receive(&mut stream, *is_async)? {
                    answers.push(answer);
                }
                Ok(answers)
            }
        }
    }

    pub fn last_call(&self) -> &CallInfo {
        match self {
            Caller::Channel(channel) => channel.last_call(),
            Caller::Pool { info, .. } => info,
        }
    }
}

fn receive(stream: &mut PoolStream, is_async: bool) -> Result<Option<Vec<u8>>, CallError> {
    match is_async {
        false => stream.receive(),
        true => pollster::block_on(stream.receive_future()),
    }
}

impl CallerStream<'_> {
    /// Sends a message. What is not taken is no message of the call, which says why.
    pub fn send(&mut self, message: &[u8]) {
        let sent = match self {
            CallerStream::Channel(stream) => return stream.send(message),
            CallerStream::Pool {
                stream,
                is_async: true,
                ..
            } => pollster::block_on(stream.send_future(message)),
            CallerStream::Pool { stream, .. } => stream.send(message),
        };
        let _ = sent;
    }

    pub fn close_send(&mut self) {
        match self {
            CallerStream::Channel(stream) => stream.close_send(),
            CallerStream::Pool { stream, .. } => stream.finish(),
        }
    }

    pub fn set_compress(&mut self, compress: bool) {
        match self {
            CallerStream::Channel(stream) => stream.set_compress(compress),
            CallerStream::Pool { stream, .. } => stream.set_compress(compress),
        }
    }

    pub fn poll(&mut self, wait: Duration) -> Result<StreamStep, CallError> {
        match self {
            CallerStream::Channel(stream) => stream.poll(wait),
            CallerStream::Pool {
                stream,
                is_async,
                info,
            } => {
                let received = receive(stream, *is_async)?;
                let receiver = stream.receiver();
                info.message_was_compressed = receiver.message_was_compressed();
                info.initial_metadata = receiver.initial_metadata().unwrap_or_default();
                let status = receiver.status();
                let trailing = status.as_ref().and_then(|status| status.metadata());
                info.trailing_metadata = trailing.cloned().unwrap_or_default();
                Ok(received.map_or(StreamStep::Ended, StreamStep::Message))
            }
        }
    }

    /// Whether the last message came compressed.
    pub fn message_was_compressed(&self) -> bool {
        match self {
            CallerStream::Channel(stream) => stream.info().message_was_compressed,
            CallerStream::Pool { info, .. } => info.message_was_compressed,
        }
    }
}
