//! One transaction: a group of batches, each in a savepoint of its own; one that is alone needs none.

use rusqlite::{Connection, ErrorCode, OptionalExtension as _, params};

use super::sqlite;
use super::writer::{Answer, Job, Work};
use super::{Batch, Committed, Row, StoreError, StoredEvent};

/// What became of one batch before the transaction ended.
pub(super) enum Done {
    Commit(Answer<Committed>, Result<Committed, StoreError>, Vec<StoredEvent>),
    Count(Answer<u64>, u64),
}

/// Who waits for what, after the work itself is gone.
pub(super) enum Waiting {
    Commit(Answer<Committed>),
    Count(Answer<u64>),
    #[cfg(test)]
    Run,
}

impl Waiting {
    pub(super) fn of(work: Work) -> Self {
        match work {
            Work::Commit(_, answer) => Self::Commit(answer),
            Work::Count(_, answer) => Self::Count(answer),
            #[cfg(test)]
            Work::Run(_, _) => Self::Run,
        }
    }
}

/// One transaction for the group. On an error nothing of it was acknowledged, and all who wait come back.
pub(super) fn transact(connection: &Connection, group: Vec<Job>) -> Result<Vec<Done>, (rusqlite::Error, Vec<Waiting>)> {
    let mut done = Vec::with_capacity(group.len());
    let undo = if group.len() == 1 { Undoing::All } else { Undoing::ToSavepoint };
    let mut jobs = group.into_iter();
    let result = (|| {
        run(connection, BEGIN)?;
        for job in jobs.by_ref() {
            let Job { work, permit } = job;
            match work {
                Work::Commit(batch, answer) => match one(connection, batch, undo) {
                    Ok((committed, events)) => done.push(Done::Commit(answer, Ok(committed), events)),
                    Err(Undo::Batch(fault)) => done.push(Done::Commit(answer, Err(fault), Vec::new())),
                    Err(Undo::Transaction(error)) => {
                        let fault = sqlite::fault(&error);
                        done.push(Done::Commit(answer, Err(fault), Vec::new()));
                        return Err(error);
                    }
                },
                Work::Count(name, answer) => {
                    let number = count(connection, &name);
                    done.push(Done::Count(answer, *number.as_ref().unwrap_or(&0)));
                    number?;
                }
                #[cfg(test)]
                Work::Run(job, answer) => {
                    run(connection, COMMIT)?;
                    job(connection);
                    drop(answer.send(Ok(())));
                    run(connection, BEGIN)?;
                }
            }
            drop(permit);
        }
        run(connection, COMMIT)
    })();
    match result {
        Ok(()) => Ok(done),
        Err(error) => {
            if !connection.is_autocommit()
                && let Err(error) = run(connection, ROLLBACK)
            {
                tracing::error!(%error, "a transaction that failed could not be undone");
            }
            let begun = done.into_iter().map(|done| match done {
                Done::Commit(answer, _, _) => Waiting::Commit(answer),
                Done::Count(answer, _) => Waiting::Count(answer),
            });
            Err((error, begun.chain(jobs.map(|job| Waiting::of(job.work))).collect()))
        }
    }
}

/// How far an error reaches.
enum Undo {
    Batch(StoreError),
    Transaction(rusqlite::Error),
}

impl From<rusqlite::Error> for Undo {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            // The values themselves were refused: that is this batch's own fault.
            Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch) | None => {
                Self::Batch(sqlite::fault(&error))
            }
            Some(_) => Self::Transaction(error),
        }
    }
}

/// How a batch is undone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Undoing {
    /// It is alone in its transaction.
    All,
    /// Others are in it.
    ToSavepoint,
}

// Prepared once: their text would be read anew for every batch.
const BEGIN: &str = "BEGIN IMMEDIATE";
const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";
const SAVEPOINT: &str = "SAVEPOINT batch";
const RELEASE: &str = "RELEASE batch";
const BACK: &str = "ROLLBACK TO batch";

fn run(connection: &Connection, statement: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(statement)?.execute([]).map(drop)
}

/// One batch, undone alone if it conflicts.
fn one(connection: &Connection, batch: Batch, undo: Undoing) -> Result<(Committed, Vec<StoredEvent>), Undo> {
    if undo == Undoing::ToSavepoint {
        run(connection, SAVEPOINT).map_err(Undo::Transaction)?;
    }
    let events = match (apply(connection, batch), undo) {
        (Ok(events), Undoing::All) => events,
        (Ok(events), Undoing::ToSavepoint) => {
            run(connection, RELEASE).map_err(Undo::Transaction)?;
            events
        }
        (Err(Undo::Batch(fault)), _) => {
            let (first, then) = match undo {
                Undoing::All => (ROLLBACK, BEGIN),
                Undoing::ToSavepoint => (BACK, RELEASE),
            };
            run(connection, first).and_then(|()| run(connection, then)).map_err(Undo::Transaction)?;
            return Err(Undo::Batch(fault));
        }
        (Err(undo), _) => return Err(undo),
    };
    let last = match events.last() {
        Some(event) => event.seq,
        None => sqlite::last_seq(connection)?,
    };
    let first = events.first().map_or(last + 1, |event| event.seq);
    Ok((Committed { first_seq: first, last_seq: last }, events))
}

fn apply(connection: &Connection, batch: Batch) -> Result<Vec<StoredEvent>, Undo> {
    let at_ms = batch.at_ms;
    let mut written = Vec::new();
    for append in batch.appends {
        let actual = version(connection, &append.stream)?;
        let (stream, expected) = (append.stream, append.expected_version);
        if actual != expected {
            return Err(Undo::Batch(StoreError::Conflict { stream, expected, actual }));
        }
        let mut insert = connection
            .prepare_cached("INSERT INTO events (stream, version, kind, data, at_ms) VALUES (?1, ?2, ?3, ?4, ?5)")?;
        for (version, event) in (expected + 1..).zip(append.events) {
            let seq = insert.insert(params![stream, version, event.kind, event.data.get(), at_ms])?;
            let (stream, kind) = (stream.clone(), event.kind.to_owned());
            written.push(StoredEvent { seq: seq.unsigned_abs(), stream, version, kind, data: event.data, at_ms });
        }
    }
    for row in batch.insert {
        let mut insert = connection.prepare_cached(
            "INSERT INTO projections (kind, key, parent, owner, state, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (kind, key) DO NOTHING",
        )?;
        if put(&mut insert, &row)? == 0 {
            return Err(Undo::Batch(StoreError::Exists { kind: row.kind.into_owned(), key: row.key }));
        }
    }
    for row in &batch.rows {
        // What a row belongs to hardly ever changes: then the indexes over it are left alone.
        let mut update = connection.prepare_cached(
            "UPDATE projections SET state = ?5, data = ?6
             WHERE kind = ?1 AND key = ?2 AND parent IS ?3 AND owner IS ?4",
        )?;
        if put(&mut update, row)? > 0 {
            continue;
        }
        let mut upsert = connection.prepare_cached(
            "INSERT INTO projections (kind, key, parent, owner, state, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (kind, key) DO UPDATE SET parent = excluded.parent, owner = excluded.owner,
             state = excluded.state, data = excluded.data",
        )?;
        put(&mut upsert, row)?;
    }
    for (kind, key) in &batch.removed {
        connection
            .prepare_cached("DELETE FROM projections WHERE kind = ?1 AND key = ?2")?
            .execute([kind.as_ref(), key])?;
    }
    Ok(written)
}

fn put(statement: &mut rusqlite::Statement<'_>, row: &Row) -> rusqlite::Result<usize> {
    statement.execute(params![row.kind, row.key, row.parent, row.owner, row.state, row.data.get()])
}

fn version(connection: &Connection, stream: &str) -> rusqlite::Result<u32> {
    let mut last =
        connection.prepare_cached("SELECT version FROM events WHERE stream = ?1 ORDER BY version DESC LIMIT 1")?;
    Ok(last.query_row([stream], |row| row.get(0)).optional()?.unwrap_or(0))
}

fn count(connection: &Connection, name: &str) -> rusqlite::Result<u64> {
    let number: i64 = connection
        .prepare_cached(
            "INSERT INTO counters (name, value) VALUES (?1, 1)
             ON CONFLICT (name) DO UPDATE SET value = value + 1 RETURNING value",
        )?
        .query_row([name], |row| row.get(0))?;
    Ok(number.unsigned_abs())
}
