//! The file: its shape, its opening, and what to do with a damaged one.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, ErrorCode, OptionalExtension as _, params};
use vance_foot_core::calls::{MAX_TOMBSTONES, Row, RowState};
use vance_shared::call::Outcome;
use vance_shared::ids::CallId;
use vance_shared::tool::Replay;

use super::group::Change;
use super::{JournalFault, Kept};
use crate::paths::shown;

/// The shape that this release writes.
const VERSION: i64 = 1;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS calls (
    call_id TEXT PRIMARY KEY NOT NULL,
    attempt INTEGER NOT NULL,
    tool TEXT NOT NULL,
    state INTEGER NOT NULL, -- 0 running, 1 finished, 2 forgotten
    replay INTEGER NOT NULL, -- 0 safe, 1 unsafe
    outcome TEXT, -- JSON, while finished
    at INTEGER NOT NULL -- seconds since 1970, of the last change
);
-- When this file took the place of one that was lost, in seconds since 1970.
CREATE TABLE IF NOT EXISTS losses (at INTEGER NOT NULL);
-- The inode of this file, so that a copy of it knows that it is one.
CREATE TABLE IF NOT EXISTS place (inode INTEGER NOT NULL);
-- Of an earlier release, and read by nobody: it made each durable write a third larger.
DROP INDEX IF EXISTS calls_open;
";

const UPSERT: &str = "
INSERT INTO calls (call_id, attempt, tool, state, replay, outcome, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (call_id) DO UPDATE SET
    attempt = max(attempt, excluded.attempt), state = excluded.state, outcome = excluded.outcome, at = excluded.at";

/// How long a tombstone stays: longer than any line stays cut while its Brain still means the call.
const TOMBSTONES_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// The open file.
pub(super) struct Store {
    connection: Connection,
    path: String,
    durable: bool,
}

/// Opens or makes the file; a damaged one is set aside. One that is missing though it is `expected` was lost, too.
pub(super) fn open(path: &Path, expected: bool) -> Result<Store, JournalFault> {
    let missing = !path.exists();
    match try_open(path) {
        Err(JournalFault::Store { error, .. }) if is_damage(&error) => {
            let aside = set_aside(path)?;
            tracing::warn!(
                "{}: the journal is damaged ({error}) and was set aside as {}; calls that it held are lost, the Brain decides about them",
                shown(path),
                shown(&aside)
            );
            remember_loss(try_open(path)?)
        }
        Ok(store) if missing && expected => {
            tracing::warn!(
                "{}: the journal is gone; calls that it held are lost, the Brain decides about them",
                shown(path)
            );
            remember_loss(store)
        }
        Ok(store) if store.is_copy(path)? => {
            tracing::warn!(
                "{}: the journal is a copy of another one; calls that ran since then are not in it, the Brain decides about them",
                shown(path)
            );
            remember_loss(store)
        }
        opened => opened,
    }
}

/// In the file itself: the loss counts over restarts, too.
fn remember_loss(store: Store) -> Result<Store, JournalFault> {
    let written = store.connection.execute("INSERT INTO losses (at) VALUES (?1)", [now()]);
    written.map_err(|error| JournalFault::Store { path: store.path.clone(), error })?;
    Ok(store)
}

fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt))
}

fn try_open(path: &Path) -> Result<Store, JournalFault> {
    let fault = |error| JournalFault::Store { path: shown(path), error };
    let connection = Connection::open(path).map_err(fault)?;
    connection.busy_timeout(Duration::from_secs(5)).map_err(fault)?;
    connection.pragma_update(None, "journal_mode", "WAL").map_err(fault)?;
    connection.pragma_update(None, "synchronous", "NORMAL").map_err(fault)?;
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(fault)?;
    if found > VERSION {
        return Err(JournalFault::Later { path: shown(path), found, known: VERSION });
    }
    connection.execute_batch(SCHEMA).map_err(fault)?;
    connection.pragma_update(None, "user_version", VERSION).map_err(fault)?;
    let store = Store { connection, path: shown(path), durable: false };
    store.prune().map_err(fault)?;
    Ok(store)
}

fn set_aside(path: &Path) -> Result<PathBuf, JournalFault> {
    let aside = path.with_extension(format!("damaged-{}", now()));
    std::fs::rename(path, &aside).map_err(|error| JournalFault::Io { path: shown(path), error })?;
    // SQLite's companions belong to the damaged file; beside a new one they would damage that one, too.
    for suffix in ["-wal", "-shm"] {
        let companion = |of: &Path| PathBuf::from(format!("{}{suffix}", of.display()));
        match std::fs::rename(companion(path), companion(&aside)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(JournalFault::Io { path: shown(path), error });
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(aside)
}

/// `None`: this system has none.
fn inode(path: &Path) -> Result<Option<i64>, JournalFault> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let found = std::fs::metadata(path).map_err(|error| JournalFault::Io { path: shown(path), error })?;
        Ok(Some(found.ino().cast_signed()))
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        Ok(None)
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

impl Store {
    /// True if the file was made by copying one, with a home or out of a backup: what the other one ran later is not in it. Only
    /// the inode is compared; numbers of devices change with the order in which a machine finds its disks.
    fn is_copy(&self, path: &Path) -> Result<bool, JournalFault> {
        let fault = |error| JournalFault::Store { path: self.path.clone(), error };
        let Some(inode) = inode(path)? else { return Ok(false) };
        let known = self.connection.query_row("SELECT inode FROM place", [], |row| row.get::<_, i64>(0));
        let known = known.optional().map_err(fault)?;
        if known != Some(inode) {
            self.connection.execute("DELETE FROM place", []).map_err(fault)?;
            self.connection.execute("INSERT INTO place (inode) VALUES (?1)", [inode]).map_err(fault)?;
        }
        Ok(known.is_some_and(|known| known != inode))
    }

    /// The file, for people.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// True if a journal before this one was lost, so lately that its Brain may still mean its calls. Unreadable counts as yes.
    pub(super) fn follows_a_loss(&self) -> bool {
        let since = now().saturating_sub_unsigned(TOMBSTONES_FOR.as_secs());
        let found = self.connection.query_row("SELECT count(*) FROM losses WHERE at >= ?1", [since], |row| row.get(0));
        found.map_or(true, |losses: i64| losses > 0)
    }

    /// Writes changes in one transaction; `durable` waits until they are on disk.
    pub(super) fn commit<'a>(
        &mut self,
        changes: impl Iterator<Item = (&'a CallId, &'a Change)>,
        durable: bool,
    ) -> Result<(), rusqlite::Error> {
        if durable != self.durable {
            // In WAL mode FULL flushes at each commit, NORMAL only at checkpoints.
            self.connection.pragma_update(None, "synchronous", if durable { "FULL" } else { "NORMAL" })?;
            self.durable = durable;
        }
        let at = now();
        // The statements are kept: reading them anew would cost as much as a row.
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let written = self.upsert(changes, at).and_then(|()| self.connection.prepare_cached("COMMIT")?.execute([]));
        if let Err(error) = written {
            if !self.connection.is_autocommit() {
                self.connection.execute_batch("ROLLBACK")?;
            }
            return Err(error);
        }
        Ok(())
    }

    fn upsert<'a>(
        &self,
        changes: impl Iterator<Item = (&'a CallId, &'a Change)>,
        at: i64,
    ) -> Result<(), rusqlite::Error> {
        let mut upsert = self.connection.prepare_cached(UPSERT)?;
        for (call_id, change) in changes {
            let Change { attempt, tool, replay, state, outcome, .. } = change;
            let replay = i64::from(*replay == Replay::Unsafe);
            let outcome = outcome.as_ref().map(encode);
            upsert.execute(params![call_id.as_str(), attempt, tool, state_number(*state), replay, outcome, at])?;
        }
        Ok(())
    }

    /// What is kept of a call's result.
    pub(super) fn load(&self, call_id: &CallId) -> Result<Kept, rusqlite::Error> {
        let mut select = self.connection.prepare_cached("SELECT state, outcome FROM calls WHERE call_id = ?1")?;
        let row = select.query_row([call_id.as_str()], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?))).optional()?;
        let text: String = match row {
            Some((1, Some(text))) => text,
            Some((2, _)) => return Ok(Kept::Forgotten),
            Some(_) | None => return Ok(Kept::Lost),
        };
        Ok(serde_json::from_str(&text).map_or_else(
            |error| {
                tracing::error!("{}: call {call_id}: {error}", self.path);
                Kept::Lost
            },
            Kept::Here,
        ))
    }

    /// All calls in the order of their beginning.
    pub(super) fn rows(&self) -> Result<Vec<Row>, rusqlite::Error> {
        let mut select = self.connection.prepare("SELECT call_id, attempt, state, replay FROM calls ORDER BY rowid")?;
        let rows = select.query_map([], |row| {
            let call_id: String = row.get(0)?;
            Ok((call_id, row.get::<_, u32>(1)?, row.get::<_, i64>(2)?, row.get::<_, i64>(3)?))
        })?;
        let mut all = Vec::new();
        for row in rows {
            let (call_id, attempt, state, replay) = row?;
            let Ok(call_id) = CallId::parse(&call_id) else { continue };
            let replay = if replay == 0 { Replay::Safe } else { Replay::Unsafe };
            let state = match state {
                0 => RowState::Running { attached: false },
                1 => RowState::Finished,
                _ => RowState::Forgotten,
            };
            all.push(Row { call_id, attempt, replay, state });
        }
        Ok(all)
    }

    /// Removes tombstones that are too old or too many.
    pub(super) fn prune(&self) -> Result<(), rusqlite::Error> {
        let oldest = now().saturating_sub_unsigned(TOMBSTONES_FOR.as_secs());
        self.connection.execute("DELETE FROM calls WHERE state = 2 AND at < ?1", [oldest])?;
        self.connection.execute(
            "DELETE FROM calls WHERE state = 2 AND rowid <= (SELECT max(rowid) FROM calls) - ?1",
            [i64::try_from(MAX_TOMBSTONES).unwrap_or(i64::MAX)],
        )?;
        Ok(())
    }
}

fn state_number(state: RowState) -> i64 {
    match state {
        RowState::Running { .. } => 0,
        RowState::Finished => 1,
        RowState::Forgotten => 2,
    }
}

/// An outcome holds only text, numbers and raw JSON, so this does not fail; should it, the row reads as a result that is gone.
fn encode(outcome: &Outcome) -> String {
    serde_json::to_string(outcome).unwrap_or_default()
}
