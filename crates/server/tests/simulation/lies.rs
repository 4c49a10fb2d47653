//! The model must notice a wrong answer: a history that is right is told with one lie, of each
//! kind.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::history::{Answer, Asked, Outcome, Record};
use super::lives::check;
use super::round::{Heard, Plan, play};
use super::world::Manners;

/// Changes the first answer that it can; `None`: this one cannot be changed so.
type Lie = fn(&mut Record) -> Option<()>;

fn answer(record: &mut Record) -> Option<&mut Answer> {
    match &mut record.outcome {
        Outcome::Answered(answer) => Some(answer),
        _ => None,
    }
}

/// A key that is always there was missed.
fn a_miss(record: &mut Record) -> Option<()> {
    match (&record.asked.clone(), answer(record)?) {
        (Asked::Get(key), Answer::Get(seen)) if super::keys::STABLE.contains(key) => *seen = None,
        _ => return None,
    }
    Some(())
}

/// A key was seen as it was before the call began.
fn an_old_version(record: &mut Record) -> Option<()> {
    match (record.asked.clone(), answer(record)?) {
        (Asked::Get(key), Answer::Get(Some(seen))) if super::keys::COUNTERS.contains(&key) => {
            let step = super::keys::step(key);
            let number = seen.content?.cast_signed() - step;
            (number != 0).then_some(())?;
            seen.content = Some(number.cast_unsigned());
        }
        _ => return None,
    }
    Some(())
}

fn a_page_without_a_key(record: &mut Record) -> Option<()> {
    let Answer::Pages(pages) = answer(record)? else {
        return None;
    };
    pages.iter_mut().find_map(|page| page.entries.pop())?;
    Some(())
}

fn a_wrong_count(record: &mut Record) -> Option<()> {
    let Answer::Count {
        count, views: 1, ..
    } = answer(record)?
    else {
        return None;
    };
    // More than may be in doubt because it expires just then.
    *count += super::keys::EXPIRING.len() as u64 + 1;
    Some(())
}

fn half_a_batch(record: &mut Record) -> Option<()> {
    match (&record.asked.clone(), answer(record)?) {
        (Asked::ReadMany(keys), Answer::Batch { results, .. })
            if super::keys::GROUPS.contains(&keys[0]) =>
        {
            let Answer::Get(Some(_)) = results[2] else {
                return None;
            };
            results[2] = Answer::Get(None);
        }
        _ => return None,
    }
    Some(())
}

fn an_append_too_long(record: &mut Record) -> Option<()> {
    let Answer::Append { length, .. } = answer(record)? else {
        return None;
    };
    *length += 8;
    Some(())
}

/// A write that was answered as done was told not to have been.
fn a_refusal_that_was_none(record: &mut Record) -> Option<()> {
    let is_append = matches!(
        (&record.asked, &record.outcome),
        (Asked::Append(_), Outcome::Answered(_))
    );
    is_append.then(|| record.outcome = Outcome::Refused)
}

fn a_condition_that_did_not_hold(record: &mut Record) -> Option<()> {
    match (&record.asked.clone(), answer(record)?) {
        (
            Asked::Put {
                condition: super::history::If::Version(_),
                ..
            },
            Answer::Put { applied: true, .. },
        ) => {}
        _ => return None,
    }
    let Asked::Put { condition, .. } = &mut record.asked else {
        return None;
    };
    *condition = super::history::If::Absent;
    Some(())
}

fn a_call_without_an_end(record: &mut Record) -> Option<()> {
    record.outcome = Outcome::Open;
    Some(())
}

fn is_noticed(heard: &Heard, lie: Lie) -> bool {
    let mut history = heard.history.clone();
    // In the middle, where much has happened before and much will after.
    let middle = history.len() / 2;
    history[middle..]
        .iter_mut()
        .find_map(lie)
        .expect("there is such an answer");
    catch_unwind(AssertUnwindSafe(|| {
        check(&history, &heard.lives, &heard.logs)
    }))
    .is_err()
}

#[test]
fn every_kind_of_lie_is_noticed() {
    let (_, heard) = play(&Plan {
        seed: 8,
        manners: Manners::Polite,
        calls: 4_000,
        dies: false,
    });
    check(&heard.history, &heard.lives, &heard.logs);
    let lies: [(&str, Lie); 9] = [
        ("a miss", a_miss),
        ("an old version", an_old_version),
        ("a page without a key", a_page_without_a_key),
        ("a wrong count", a_wrong_count),
        ("half a batch", half_a_batch),
        ("an append too long", an_append_too_long),
        ("a refusal that was none", a_refusal_that_was_none),
        (
            "a condition that did not hold",
            a_condition_that_did_not_hold,
        ),
        ("a call without an end", a_call_without_an_end),
    ];
    let unnoticed: Vec<_> = lies
        .iter()
        .filter(|(_, lie)| !is_noticed(&heard, *lie))
        .map(|(name, _)| name)
        .collect();
    assert!(unnoticed.is_empty(), "unnoticed: {unnoticed:?}");
}
