//! Search: keys that a pattern matches, that are near a text, or that lie behind one.
//!
//! All of it is a walk in steps, each of which looks at so many bytes at most: a pattern that is
//! compared with long keys takes more steps, not longer ones. Few searches of a server compute at a
//! time, and take turns ([`SearchTurns`](crate::tkrzw_state::SearchTurns)).

use std::collections::BinaryHeap;
use std::ops::{Bound, ControlFlow};

use api::tkrzw::{SearchRequest, SearchResponse};
use protobuf::writer;
use store::tree::{NotFetched, ReadPlan};
use store::{Direction, Range, ReadView};

use super::decode::decode;
use super::distance::{Distance, TextUnit};
use super::get_multi::{answer_bytes, answer_too_large};
use super::patterns::{BadPattern, KeyPattern};
use super::result::{RequestResult, ResultCode};
use super::target::{Target, target};
use super::walk::{Walk, WalkEnd};
use super::{TkrzwActions, TkrzwStep, wait};
use crate::actions::{CallClock, DatabaseAccess, ResponseMemory, Responses};
use crate::call::Shared;
use crate::limits::{
    TKRZW_PATTERN_BYTES, TKRZW_REGEX_MEMORY_BYTES, TKRZW_SEARCH_ANSWER_BYTES,
    TKRZW_SEARCH_STEP_BYTES,
};
use crate::method::Method;
use crate::rights::Right;
use crate::status::Status;
use crate::tkrzw_state::SearchTicket;
use crate::waiting::WaitingPlace;

/// There is no such mode.
const UNKNOWN_MODE: RequestResult = RequestResult {
    code: ResultCode::InvalidArgument,
    words: "unknown mode",
};

/// The pattern means nothing in the mode.
const BAD_PATTERN: RequestResult = RequestResult {
    code: ResultCode::InvalidArgument,
    words: "the pattern is not one of this mode, or is too large",
};

/// A search between two steps.
pub(super) struct Search {
    walk: Walk,
    matcher: Matcher,
    /// Keys that may still be found.
    capacity: usize,
    found: Vec<Box<[u8]>>,
    found_bytes: usize,
    ticket: SearchTicket,
    /// A view was asked for and has not come yet.
    is_asked: bool,
    _place: WaitingPlace,
}

/// What decides whether a key is found.
enum Matcher {
    Pattern(KeyPattern),
    Nearest(Box<Nearest>),
}

/// The keys that are nearest to a text.
struct Nearest {
    distance: Distance,
    /// The key that is compared, if it could not be in one step.
    current: Option<Box<[u8]>>,
    /// The farthest first. Of the same distance, those that were found first.
    kept: BinaryHeap<(u32, u64, Box<[u8]>)>,
    kept_bytes: usize,
    count: u64,
    /// The walk has ended.
    is_complete: bool,
}

/// A request as it is carried out.
enum Plan {
    Done(RequestResult),
    Walk(Walk, Matcher),
}

impl Search {
    /// Takes up a request.
    pub(super) fn begin(
        method: Method,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut impl TkrzwActions,
    ) -> Result<Option<TkrzwStep>, Status> {
        let request: SearchRequest<'_> = decode(method, bytes)?;
        let target = target(request.dbm_index, Right::Read, shared, actions)?;
        let capacity = match usize::try_from(request.capacity) {
            Ok(0) | Err(_) => usize::MAX,
            Ok(capacity) => capacity,
        };
        let longest_bytes = store::limits::KEY_BYTES + KEY_OVERHEAD_BYTES;
        let most_bytes = search_answer_bytes(shared).min(capacity.saturating_mul(longest_bytes));
        let pattern_bytes = match request.mode {
            "regex" => TKRZW_REGEX_MEMORY_BYTES,
            _ => 0,
        };
        // Before anything is found or compiled: others that search wait while there is no memory.
        if !actions.room_for_answer(bytes.len() + most_bytes + pattern_bytes) {
            return Ok(None);
        }
        let (walk, matcher) = match plan(&request, target) {
            Plan::Done(result) => {
                actions.respond(|out| result.encode(out));
                return Ok(None);
            }
            Plan::Walk(walk, matcher) => (walk, matcher),
        };
        // It may wait for its turn as long as others search.
        let place = shared.waiting.enter(actions.caller())?;
        let signal = shared.store.signal();
        actions.watch(signal.news());
        let turns = &shared.settings.tkrzw.state.searches;
        let mut search = Search {
            walk,
            matcher,
            capacity,
            found: Vec::new(),
            found_bytes: 0,
            ticket: turns.enter(actions.caller(), signal),
            is_asked: false,
            _place: place,
        };
        if search.ticket.has_turn() {
            search.ask(actions);
        }
        Ok(Some(TkrzwStep::Search(Box::new(search))))
    }

    fn ask(&mut self, actions: &mut impl DatabaseAccess) {
        self.is_asked = true;
        self.walk.ask(actions);
    }

    /// Goes on if its turn has come.
    pub(super) fn woken(
        &mut self,
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Responses),
    ) {
        if self.is_asked {
            return;
        }
        if shared.health.is_stopping() {
            return actions.finish(wait::stopping());
        }
        if self.ticket.has_turn() {
            self.ask(actions);
        }
    }

    pub(super) fn plan_reads(&self, plan: &mut ReadPlan) {
        self.walk.plan_reads(plan);
    }

    /// Takes a step.
    pub(super) fn read(
        &mut self,
        view: &ReadView<'_>,
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Responses + ResponseMemory + CallClock),
    ) -> Result<(), NotFetched> {
        self.is_asked = false;
        if shared.health.is_stopping() {
            // It may take minutes, and would hold up the end of the server.
            actions.finish(wait::stopping());
            return Ok(());
        }
        let is_complete = self.step(view, actions.now_ms())?;
        let most = search_answer_bytes(shared);
        if self.bytes() > most {
            actions.finish(answer_too_large(most));
        } else if is_complete {
            self.respond(actions);
        } else if self.ticket.go_on() {
            self.ask(actions);
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        match &self.matcher {
            Matcher::Pattern(_) => self.found_bytes,
            Matcher::Nearest(nearest) => nearest.kept_bytes,
        }
    }

    /// Returns whether all is found.
    fn step(&mut self, view: &ReadView<'_>, now_ms: u64) -> Result<bool, NotFetched> {
        let Search {
            walk,
            matcher,
            capacity,
            found,
            found_bytes,
            ..
        } = self;
        let mut budget = TKRZW_SEARCH_STEP_BYTES;
        match matcher {
            Matcher::Pattern(pattern) => {
                let end = walk.step(view, now_ms, &mut |entry| {
                    if pattern.matches(entry.key) {
                        found.push(entry.key.into());
                        *found_bytes += entry.key.len() + KEY_OVERHEAD_BYTES;
                    }
                    budget = budget.saturating_sub(pattern.cost(entry.key));
                    match budget == 0 || found.len() == *capacity {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    }
                })?;
                Ok(end == WalkEnd::Complete || found.len() == *capacity)
            }
            Matcher::Nearest(nearest) => {
                if !nearest.go_on(*capacity, &mut budget) {
                    return Ok(false);
                }
                if nearest.is_complete {
                    return Ok(true);
                }
                let end = walk.step(view, now_ms, &mut |entry| {
                    nearest.begin(entry.key);
                    match nearest.go_on(*capacity, &mut budget) && budget > 0 {
                        true => ControlFlow::Continue(()),
                        false => ControlFlow::Break(()),
                    }
                })?;
                nearest.is_complete = end == WalkEnd::Complete;
                Ok(nearest.is_complete && nearest.current.is_none())
            }
        }
    }

    fn respond(&mut self, actions: &mut impl Responses) {
        let mut found = std::mem::take(&mut self.found);
        if let Matcher::Nearest(nearest) = &mut self.matcher {
            let kept = std::mem::take(&mut nearest.kept).into_sorted_vec();
            found = kept.into_iter().map(|(_, _, key)| key).collect();
        }
        actions.respond(|out| {
            RequestResult::SUCCESS.encode(out);
            for key in &found {
                writer::bytes_always(out, SearchResponse::NUMBERS.matched, key);
            }
        });
    }
}

/// What a response may have at most, in bytes.
fn search_answer_bytes(shared: &Shared) -> usize {
    answer_bytes(shared).min(TKRZW_SEARCH_ANSWER_BYTES)
}

/// What a key that was found takes in memory beside its bytes.
const KEY_OVERHEAD_BYTES: usize = 24;

impl Nearest {
    fn begin(&mut self, key: &[u8]) {
        self.distance.begin(key);
        self.current = Some(key.into());
    }

    /// Goes on with the key that is compared. Returns whether there is none any more.
    fn go_on(&mut self, capacity: usize, budget: &mut usize) -> bool {
        let Some(key) = self.current.take() else {
            return true;
        };
        let Some(distance) = self.distance.advance(budget) else {
            self.current = Some(key);
            return false;
        };
        self.count += 1;
        self.kept_bytes += key.len() + KEY_OVERHEAD_BYTES;
        self.kept.push((distance, self.count, key));
        if self.kept.len() > capacity
            && let Some((_, _, farthest)) = self.kept.pop()
        {
            self.kept_bytes -= farthest.len() + KEY_OVERHEAD_BYTES;
        }
        true
    }
}

fn plan(request: &SearchRequest<'_>, target: Target<'_>) -> Plan {
    let pattern = request.pattern;
    let all = |direction, range: &Range<'_>| {
        let walk = Walk::new(target.id, range, direction).keys_only();
        walk.by_hash(target.is_by_hash)
    };
    let by_pattern = |made: Result<KeyPattern, BadPattern>| match made {
        Ok(pattern) => Plan::Walk(
            all(Direction::Forward, &Range::ALL),
            Matcher::Pattern(pattern),
        ),
        Err(BadPattern) => Plan::Done(BAD_PATTERN),
    };
    let nearest = |unit| {
        let nearest = Nearest {
            distance: Distance::new(unit, pattern),
            current: None,
            kept: BinaryHeap::new(),
            kept_bytes: 0,
            count: 0,
            is_complete: false,
        };
        let walk = all(Direction::Forward, &Range::ALL);
        Plan::Walk(walk, Matcher::Nearest(Box::new(nearest)))
    };
    if let Some(ordered) = in_order(request, target) {
        return ordered;
    }
    if pattern.len() > TKRZW_PATTERN_BYTES {
        return Plan::Done(BAD_PATTERN);
    }
    if let Some(made) = KeyPattern::contains(request.mode, pattern) {
        return by_pattern(made);
    }
    match request.mode {
        "begin" => {
            let mut end = Vec::new();
            let range = Range::prefix(pattern, &mut end);
            let walk = all(Direction::Forward, &range);
            Plan::Walk(walk, Matcher::Pattern(KeyPattern::Any))
        }
        "end" => by_pattern(Ok(KeyPattern::Ends(pattern.into()))),
        "regex" => by_pattern(KeyPattern::regex(pattern)),
        "edit" => nearest(TextUnit::CodePoint),
        "editbin" => nearest(TextUnit::Byte),
        _ => Plan::Done(UNKNOWN_MODE),
    }
}

/// Returns the plan of a mode that needs an order; `None`: it is none of them.
fn in_order(request: &SearchRequest<'_>, target: Target<'_>) -> Option<Plan> {
    let (key, unbounded) = (request.pattern, Bound::Unbounded);
    let (direction, start, end) = match request.mode {
        "upper" => (Direction::Forward, Bound::Excluded(key), unbounded),
        "upperinc" => (Direction::Forward, Bound::Included(key), unbounded),
        "lower" => (Direction::Backward, unbounded, Bound::Excluded(key)),
        "lowerinc" => (Direction::Backward, unbounded, Bound::Included(key)),
        _ => return None,
    };
    if !target.is_ordered() {
        return Some(Plan::Done(RequestResult::UNORDERED));
    }
    if key.len() > store::limits::KEY_BYTES {
        return Some(Plan::Done(BAD_PATTERN));
    }
    if request.capacity <= 0 {
        return Some(Plan::Done(RequestResult::SUCCESS));
    }
    let walk = Walk::new(target.id, &Range { start, end }, direction).keys_only();
    Some(Plan::Walk(walk, Matcher::Pattern(KeyPattern::Any)))
}
