//! What is too large to travel: kept by the client or by the server that made it, and read by its owner in pieces. Nobody
//! remembers where something is: its handle says so.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use tokio::sync::oneshot;
use vance_blobs::{BlobFault, Blobs};
use vance_shared::blob::{Kept, is_too_large};
use vance_shared::call::Outcome;
use vance_shared::ids::{BlobHandle, CallId, ClientId};
use vance_shared::limits::BLOB_PIECE_BYTES;

use crate::actors::session::GetBlob;
use crate::api::ApiError;
use crate::hub::Brain;
use crate::rows::CLIENT;

/// How long a client may take for one piece: over a line of 10 KiB/s.
const PIECE_WAIT: Duration = Duration::from_secs(30);

/// A server tool's outcome as it is stored and told: what is too large of it is kept here, for the owner.
pub async fn within_limits(brain: &Brain, call_id: &CallId, owner: &str, outcome: Outcome) -> Outcome {
    let Some(blobs) = brain.blobs.get().filter(|_| is_too_large(&outcome)).cloned() else { return outcome };
    let (call_id, owner) = (call_id.clone(), owner.to_owned());
    let work = async move {
        let small = blobs.within_limits(&call_id, Some(&owner), outcome);
        // The oldest makes room, whoever has read it.
        blobs.delivered(&call_id);
        small
    };
    match vance_supervise::beside(work).await {
        Ok(outcome) => outcome,
        Err(_) => Outcome::failed("internal", "the tool ran, but its large result is lost: what keeps it panicked"),
    }
}

/// A piece, for one who owns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Of what.
    pub kept: Kept,
    /// From the offset that was asked for, at most [`BLOB_PIECE_BYTES`]; shorter at the end.
    pub bytes: Vec<u8>,
}

/// Reads a piece. What is somebody else's is not found.
pub async fn read(brain: &Brain, owner: &str, handle: &BlobHandle, offset: u64) -> Result<Piece, ApiError> {
    match handle.client() {
        Some(client_id) => of_client(brain, owner, client_id, handle, offset).await,
        None => of_server(brain, owner, handle, offset).await,
    }
}

fn not_found(handle: &BlobHandle) -> ApiError {
    let text = format!("there is no {handle}, or it has made room for newer ones");
    ApiError::new(404, "blob_not_found", text)
}

async fn of_server(brain: &Brain, owner: &str, handle: &BlobHandle, offset: u64) -> Result<Piece, ApiError> {
    let blobs: Arc<Blobs> = brain.blobs.get().cloned().ok_or_else(|| not_found(handle))?;
    let wanted = handle.clone();
    let read = vance_supervise::beside(async move { blobs.read(&wanted, offset, BLOB_PIECE_BYTES) }).await;
    match read {
        Ok(Ok(piece)) if piece.owner.as_deref() == Some(owner) => Ok(Piece { kept: piece.kept, bytes: piece.bytes }),
        Ok(Ok(_) | Err(BlobFault::Gone(_))) => Err(not_found(handle)),
        Ok(Err(fault)) => Err(ApiError::new(500, "internal", fault.to_string())),
        Err(_) => Err(ApiError::new(500, "internal", "what keeps large results panicked")),
    }
}

async fn of_client(
    brain: &Brain,
    owner: &str,
    client_id: ClientId,
    handle: &BlobHandle,
    offset: u64,
) -> Result<Piece, ApiError> {
    let row = brain.store.row(CLIENT, client_id.as_str()).await?;
    if row.and_then(|row| row.owner).as_deref() != Some(owner) {
        return Err(not_found(handle));
    }
    let absent = || {
        let text = format!("the client {client_id}, which keeps it, is away; ask again when it is back");
        ApiError::new(409, "client_absent", text)
    };
    let session_id = brain.directory.session_of(&client_id).ok_or_else(absent)?;
    let session = brain.directory.get(brain, &session_id).await?;
    let (reply, answer) = oneshot::channel();
    let message =
        GetBlob { client_id: client_id.clone(), handle: handle.clone(), offset, length: BLOB_PIECE_BYTES, reply };
    session.actor.post(message).await.map_err(|_| absent())?;
    let late = || {
        let text = format!("the client {client_id} gave no piece within {} s; try again", PIECE_WAIT.as_secs());
        ApiError::new(503, "unavailable", text)
    };
    let part = tokio::time::timeout(PIECE_WAIT, answer).await.map_err(|_| late())?.map_err(|_| absent())??;
    if let Some(fault) = part.error {
        return Err(match fault.code.as_str() {
            "blob_not_found" => not_found(handle),
            _ => ApiError::new(503, "unavailable", format!("the client cannot read it: {}", fault.message)),
        });
    }
    let wrong =
        || ApiError::new(503, "unavailable", format!("the client {client_id} gave another piece than was asked for"));
    let bytes = base64::engine::general_purpose::STANDARD.decode(&part.data).map_err(|_| wrong())?;
    let full = usize::try_from(part.size.saturating_sub(offset)).unwrap_or(usize::MAX).min(BLOB_PIECE_BYTES);
    if part.handle != *handle || part.offset != offset || bytes.len() != full {
        return Err(wrong());
    }
    let kept = Kept { handle: part.handle, size: part.size, media_type: part.media_type, sha256: part.sha256 };
    Ok(Piece { kept, bytes })
}
