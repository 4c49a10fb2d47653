//! `pelton batch`

use std::io::Read;

use api::keyvalue::{
    BatchMode, BatchRequest, BatchResponse, Operation, OperationResult, PipeAnswers, PipeRequest,
    ResultBody,
};
use api::rpc::keyvalue::Batch;
use service::limits::ANSWER_BYTES_MAX;

use super::pipe::{self, GROUP_BYTES, GROUP_OPERATIONS, GroupOutcome, PipeGroup};
use super::results::{self, InputPlace, OperationVerdict, Unit, failure_text, judge};
use super::{Caller, unreadable};
use crate::arguments::{BatchArguments, BatchModeArgument};
use crate::exit::{Exit, Failure};
use crate::input::{self, InputLines};
use crate::interrupt::Interrupt;
use crate::json::{OperationJson, OwnedOperation};
use crate::json_text::read_line;
use crate::output::{Output, note};

/// Operations in one group whose results may carry values: so many of the default size fit into the
/// largest answer.
const GROUP_VALUES: usize = ANSWER_BYTES_MAX as usize / store::limits::VALUE_BYTES - 1;

/// Bytes of an atomic batch that are read: the largest commit that any server can be set to take.
const ATOMIC_BYTES_MAX: usize = store::limits::commit_bytes(store::limits::VALUE_BYTES_MAX);

/// Does operations from a file or a pipe.
pub fn batch(arguments: &BatchArguments) -> Result<Exit, Failure> {
    let input = input::open(arguments.file.as_deref())?;
    let operations = InputOperations {
        lines: InputLines::new(input.source, &input.name),
        name: input.name,
    };
    match arguments.mode {
        BatchModeArgument::Atomic => atomic(arguments, operations),
        BatchModeArgument::Independent => independent(arguments, operations),
    }
}

/// The operations of an input, with the numbers of their lines.
struct InputOperations<R> {
    lines: InputLines<R>,
    name: String,
}

impl<R: Read> InputOperations<R> {
    fn next(&mut self) -> Result<Option<(u64, OwnedOperation)>, Failure> {
        let Some((number, line)) = self.lines.next_line()? else {
            return Ok(None);
        };
        let operation = read_line::<OperationJson>(line).and_then(OperationJson::decode);
        match operation {
            Ok(operation) => Ok(Some((number, operation))),
            Err(error) => Err(Failure::Usage(format!(
                "{}, line {number}: {error}",
                self.name
            ))),
        }
    }
}

// --- atomic

fn atomic(
    arguments: &BatchArguments,
    mut operations: InputOperations<impl Read>,
) -> Result<Exit, Failure> {
    let (mut read, mut bytes) = (Vec::new(), 0);
    while let Some((number, operation)) = operations.next()? {
        bytes += operation.request_bytes();
        if read.len() == store::limits::COMMIT_OPERATIONS || bytes > ATOMIC_BYTES_MAX {
            return Err(Failure::Failed(format!(
                "{}, line {number}: more than one commit can take ({} operations or \
                 {ATOMIC_BYTES_MAX} bytes), nothing was done; --mode independent takes any number",
                operations.name,
                store::limits::COMMIT_OPERATIONS
            )));
        }
        read.push((InputPlace::of(&operation, number), operation));
    }
    let database = &arguments.database;
    let borrowed: Vec<Operation<'_>> = read.iter().map(|(_, one)| one.borrow()).collect();
    let request = BatchRequest {
        database: &database.database,
        mode: BatchMode::Atomic.number(),
        operations: borrowed[..].into(),
        max_answer_bytes: ANSWER_BYTES_MAX,
        ..BatchRequest::default()
    };
    let reply = Caller::connect(&database.connection)?.call::<Batch>(&request)?;
    let answer = reply.message();
    let places: Vec<InputPlace> = read.iter().map(|(place, _)| *place).collect();
    let mut output = Output::new(database.connection.output);
    let verdict = if answer.applied {
        print_all(
            &mut output,
            Unit::Line,
            &places,
            &answer,
            arguments.failures_only,
        )?
    } else {
        print_failed(&mut output, Unit::Line, &places, &answer)?
    };
    output.end()?;
    Ok(verdict.exit())
}

/// Prints the results of a list of which all took effect.
pub fn print_all(
    output: &mut Output,
    unit: Unit,
    places: &[InputPlace],
    answer: &BatchResponse<'_>,
    failures_only: bool,
) -> Result<OperationVerdict, Failure> {
    let mut worst = OperationVerdict::Done;
    let mut count = 0;
    for (place, result) in places.iter().zip(answer.results.iter().flatten()) {
        let result = known(result)?;
        let verdict = judge(place, &result);
        if verdict != OperationVerdict::Done || !failures_only {
            results::print(output, unit, place, &result)?;
        }
        worst = worst.max(verdict);
        count += 1;
    }
    if count != places.len() {
        return Err(unreadable("results are missing"));
    }
    Ok(worst)
}

/// Says which operation kept a list from taking effect.
pub fn print_failed(
    output: &mut Output,
    unit: Unit,
    places: &[InputPlace],
    answer: &BatchResponse<'_>,
) -> Result<OperationVerdict, Failure> {
    let place = places
        .get(answer.failed_operation as usize)
        .ok_or_else(|| unreadable("an operation failed that was not sent"))?;
    let result = answer.failed_result.and_then(|failed| failed.result);
    let result = result.ok_or_else(|| {
        unreadable("an operation failed in a way that this version does not know")
    })?;
    if output.is_json() {
        let mut fields = results::fields(unit, place, &result);
        fields.insert("applied".into(), false.into());
        output.object(fields)?;
    } else {
        let what = results::describe(place, &result);
        let (unit, number) = (unit.name(), place.number);
        note(format_args!(
            "pelton: nothing was done: {unit} {number}: {what}"
        ));
    }
    Ok(judge(place, &result).max(OperationVerdict::Unmet))
}

fn known(result: OperationResult<'_>) -> Result<ResultBody<'_>, Failure> {
    result
        .result
        .ok_or_else(|| unreadable("a result of a kind that this version does not know"))
}

// --- independent

fn independent(
    arguments: &BatchArguments,
    operations: InputOperations<impl Read + Send + 'static>,
) -> Result<Exit, Failure> {
    let interrupt = Interrupt::listen();
    let mut caller = Caller::connect(&arguments.database.connection)?;
    let answers = if arguments.failures_only {
        PipeAnswers::FailuresOnly
    } else {
        PipeAnswers::All
    };
    let request = PipeRequest {
        database: &arguments.database.database,
        answers: answers.number(),
        max_answer_bytes: ANSWER_BYTES_MAX,
        ..PipeRequest::default()
    };
    let groups = pipe::read_ahead(grouped(operations))?;
    let mut progress = BatchProgress {
        output: Output::new(arguments.database.connection.output).optional(),
        failures_only: arguments.failures_only,
        worst: OperationVerdict::Done,
        answered: 0,
    };
    let mut take = |places: &[_], outcome: GroupOutcome<'_>| progress.take(places, outcome);
    let ended = pipe::run(&mut caller, request, &groups, &interrupt, &mut take);
    let BatchProgress {
        output,
        worst,
        answered,
        ..
    } = progress;
    // The results that came before an error are true, and somebody wants to read them.
    output.end()?;
    match ended {
        Ok(()) => Ok(worst.exit()),
        Err(failure) => {
            // What ends the input does so when all that was sent before is answered.
            let is_settled = matches!(failure, Failure::Usage(_) | Failure::Interrupted(_));
            Err(failure.with(&what_was_done(answered, is_settled)))
        }
    }
}

/// What became of the operations before a failure; `is_settled`: no other one was sent.
fn what_was_done(answered: u64, is_settled: bool) -> String {
    let before = match (answered, is_settled) {
        (0, true) => return "nothing was done".into(),
        (0, false) => "no operation was answered before".into(),
        (1, _) => "1 operation was answered before".into(),
        (many, _) => format!("{many} operations were answered before"),
    };
    match is_settled {
        true => format!("{before}, and none behind was done"),
        false => format!("{before}, and others may have been done"),
    }
}

/// Makes groups of operations: what has been read by now, up to the bounds of a group.
fn grouped(
    mut operations: InputOperations<impl Read>,
) -> impl FnMut() -> Result<Option<PipeGroup<InputPlace>>, Failure> {
    let (mut failed, mut is_over) = (None, false);
    move || {
        if let Some(failure) = failed.take() {
            return Err(failure);
        }
        let (mut places, mut group) = (Vec::new(), Vec::new());
        let (mut bytes, mut values) = (0, 0);
        let has_room = |count, bytes, values| {
            count < GROUP_OPERATIONS && bytes < GROUP_BYTES && values < GROUP_VALUES
        };
        while !is_over && has_room(group.len(), bytes, values) {
            if !group.is_empty() && operations.lines.may_wait() {
                break;
            }
            match operations.next() {
                Ok(Some((number, operation))) => {
                    bytes += operation.request_bytes();
                    values += usize::from(operation.wants_value());
                    places.push(InputPlace::of(&operation, number));
                    group.push(operation);
                }
                Ok(None) => is_over = true,
                // What stands before it is still to be done.
                Err(failure) if !group.is_empty() => {
                    failed = Some(failure);
                    break;
                }
                Err(failure) => return Err(failure),
            }
        }
        if group.is_empty() {
            return Ok(None);
        }
        Ok(Some(PipeGroup {
            operations: group,
            places,
        }))
    }
}

/// What has been answered.
struct BatchProgress {
    output: Output,
    failures_only: bool,
    worst: OperationVerdict,
    answered: u64,
}

impl BatchProgress {
    fn take(&mut self, places: &[InputPlace], outcome: GroupOutcome<'_>) -> Result<(), Failure> {
        self.answered += places.len() as u64;
        let verdict = match outcome {
            GroupOutcome::Done => OperationVerdict::Done,
            GroupOutcome::Refused(failure) => {
                let (first, last) = (places[0].number, places[places.len() - 1].number);
                note(format_args!(
                    "pelton: nothing of lines {first} to {last} was done: {}",
                    failure_text(&failure)
                ));
                OperationVerdict::Failed
            }
            GroupOutcome::Answered(answer, None) => {
                let output = &mut self.output;
                print_all(output, Unit::Line, places, &answer, self.failures_only)?
            }
            GroupOutcome::Answered(answer, Some(indexes)) => {
                let failed: Option<Vec<InputPlace>> = indexes
                    .iter()
                    .map(|&index| places.get(index as usize).copied())
                    .collect();
                let failed = failed.ok_or_else(|| unreadable("a result of no operation"))?;
                // The server says that these failed: a Delete that found nothing had a condition.
                print_all(&mut self.output, Unit::Line, &failed, &answer, false)?
                    .max(OperationVerdict::Unmet)
            }
        };
        self.worst = self.worst.max(verdict);
        self.output.flush()
    }
}
