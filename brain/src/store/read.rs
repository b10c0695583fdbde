//! Reads: a few connections of their own, beside the writer, on blocking threads.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, Row as SqlRow, params, params_from_iter};
use tokio::sync::Semaphore;
use vance_shared::json::Raw;

use super::{DEFAULT_PAGE, Filter, MAX_PAGE, Row, SLIM_BYTES, SLIM_PAGE_BYTES, StoreError, StoredEvent, sqlite};

/// Reads at a time; more wait. Each connection keeps about 2 MiB of pages.
const READERS: usize = 4;

pub(super) struct Readers {
    file: PathBuf,
    /// A lock, because a blocking thread takes a connection and brings it back; held for a push or pop.
    idle: Arc<Mutex<Vec<Connection>>>,
    turns: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(file: PathBuf) -> Self {
        Self { file, idle: Arc::default(), turns: Arc::new(Semaphore::new(READERS)) }
    }

    /// Runs a read on a connection that nobody else uses. One that failed is not used again.
    pub(super) async fn with<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let unavailable = |reason: String| StoreError::Unavailable { reason };
        let turn = self.turns.clone().acquire_owned().await.map_err(|e| unavailable(e.to_string()))?;
        let (file, idle) = (self.file.clone(), self.idle.clone());
        let work = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let kept = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = match kept {
                Some(connection) => connection,
                None => open(&file)?,
            };
            let result = read(&connection)?;
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            Ok(result)
        });
        work.await.map_err(|e| unavailable(e.to_string()))?.map_err(|e: rusqlite::Error| sqlite::fault(&e))
    }
}

fn open(file: &std::path::Path) -> rusqlite::Result<Connection> {
    let connection = sqlite::connect(file)?;
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -2000;")?;
    Ok(connection)
}

const EVENT: &str = "SELECT seq, stream, version, kind, data, at_ms FROM events";

pub(super) fn stream(connection: &Connection, stream: &str) -> rusqlite::Result<Vec<StoredEvent>> {
    let sql = format!("{EVENT} WHERE stream = ?1 ORDER BY version");
    connection.prepare_cached(&sql)?.query_map([stream], event)?.collect()
}

pub(super) fn after(connection: &Connection, seq: u64, limit: usize) -> rusqlite::Result<Vec<StoredEvent>> {
    let sql = format!("{EVENT} WHERE seq > ?1 ORDER BY seq LIMIT ?2");
    let from = i64::try_from(seq).unwrap_or(i64::MAX);
    connection.prepare_cached(&sql)?.query_map(params![from, page(limit)], event)?.collect()
}

pub(super) fn row(connection: &Connection, kind: &str, key: &str) -> rusqlite::Result<Option<Row>> {
    let sql = "SELECT kind, key, parent, owner, state, data FROM projections WHERE kind = ?1 AND key = ?2";
    connection.prepare_cached(sql)?.query_row([kind, key], projection).optional()
}

/// A row's data; of a large one without the output.
fn data(slim: bool) -> String {
    if !slim {
        return "data".to_owned();
    }
    format!(
        "CASE WHEN octet_length(data) > {SLIM_BYTES} AND json_valid(data) THEN json_set(data, '$.view.output', NULL, \
         '$.view.output_bytes', octet_length(data -> '$.view.output')) ELSE data END"
    )
}

pub(super) fn rows(connection: &Connection, kind: &str, filter: &Filter) -> rusqlite::Result<Vec<Row>> {
    let mut sql =
        format!("SELECT kind, key, parent, owner, state, {} FROM projections WHERE kind = ?", data(filter.slim));
    let mut values = vec![Value::from(kind.to_owned())];
    for (column, value) in [("parent", &filter.parent), ("owner", &filter.owner)] {
        if let Some(value) = value {
            sql.push_str(&format!(" AND {column} = ?"));
            values.push(value.clone().into());
        }
    }
    if !filter.states.is_empty() {
        sql.push_str(&format!(" AND state IN ({})", vec!["?"; filter.states.len()].join(", ")));
        values.extend(filter.states.iter().cloned().map(Value::from));
    }
    if let Some(key) = &filter.after_key {
        sql.push_str(if filter.descending { " AND key < ?" } else { " AND key > ?" });
        values.push(key.clone().into());
    }
    sql.push_str(if filter.descending { " ORDER BY key DESC LIMIT ?" } else { " ORDER BY key LIMIT ?" });
    values.push(page(filter.limit.unwrap_or(DEFAULT_PAGE)).into());
    let mut select = connection.prepare_cached(&sql)?;
    let (mut out, mut bytes) = (Vec::new(), 0);
    for row in select.query_map(params_from_iter(values), projection)? {
        let row = row?;
        bytes += row.data.get().len();
        out.push(row);
        if filter.slim && bytes >= SLIM_PAGE_BYTES {
            break;
        }
    }
    Ok(out)
}

fn page(limit: usize) -> i64 {
    i64::try_from(limit.min(MAX_PAGE)).unwrap_or(i64::MAX)
}

fn event(row: &SqlRow<'_>) -> rusqlite::Result<StoredEvent> {
    Ok(StoredEvent {
        seq: row.get::<_, i64>(0)?.unsigned_abs(),
        stream: row.get(1)?,
        version: row.get(2)?,
        kind: row.get(3)?,
        data: raw(row, 4)?,
        at_ms: row.get(5)?,
    })
}

fn projection(row: &SqlRow<'_>) -> rusqlite::Result<Row> {
    Ok(Row {
        kind: row.get::<_, String>(0)?.into(),
        key: row.get(1)?,
        parent: row.get(2)?,
        owner: row.get(3)?,
        state: row.get(4)?,
        data: raw(row, 5)?,
    })
}

fn raw(row: &SqlRow<'_>, column: usize) -> rusqlite::Result<Raw> {
    Raw::parse(row.get(column)?)
        .map_err(|e| rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(e)))
}
