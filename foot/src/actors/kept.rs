//! What this Foot keeps of results that are too large to travel, and pieces of it for the Brain: one after the other, each as soon
//! as the one before has found room on the line.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use tokio::sync::mpsc;
use vance_blobs::{BlobFault, Blobs, Piece};
use vance_shared::ids::ClientId;
use vance_shared::limits::{BLOB_PIECE_BYTES, BLOBS_BYTES};
use vance_shared::wire::{BlobGet, BlobPart, ToBrain};

/// Pieces that the Brain may have asked for and not got: more is answered `busy`.
pub(super) const WAITING: usize = 64;

/// Where results stay that are too large to travel. Without it they fail with a reason.
pub(crate) fn open(dir: &Path, client_id: &ClientId) -> Option<Arc<Blobs>> {
    match Blobs::open(dir, BLOBS_BYTES, Some(client_id.clone())) {
        Ok(blobs) => Some(Arc::new(blobs)),
        Err(fault) => {
            tracing::warn!("results that are too large to travel are not kept: {fault}");
            None
        }
    }
}

/// Answers what is asked for, for the life of one line.
pub(super) async fn serve(
    mut gets: mpsc::Receiver<BlobGet>,
    blobs: Option<Arc<Blobs>>,
    control: mpsc::Sender<ToBrain>,
) -> std::convert::Infallible {
    while let Some(get) = gets.recv().await {
        let part = piece(blobs.clone(), get).await;
        if control.send(ToBrain::BlobPart(part)).await.is_err() {
            break;
        }
    }
    // The line ends, and this with it.
    std::future::pending().await
}

async fn piece(blobs: Option<Arc<Blobs>>, get: BlobGet) -> BlobPart {
    let Some(blobs) = blobs else {
        let text = format!("there is no {} here", get.handle);
        return BlobPart::fault(get, "blob_not_found", text);
    };
    let (handle, offset, length) = (get.handle.clone(), get.offset, get.length.min(BLOB_PIECE_BYTES));
    let read = vance_supervise::beside(async move {
        let Piece { kept, bytes, .. } = blobs.read(&handle, offset, length)?;
        Ok((kept, base64::engine::general_purpose::STANDARD.encode(bytes)))
    });
    match read.await {
        Ok(Ok((kept, data))) => BlobPart {
            request: get.request,
            handle: kept.handle,
            offset: get.offset,
            size: kept.size,
            media_type: kept.media_type,
            sha256: kept.sha256,
            data,
            error: None,
        },
        Ok(Err(fault @ BlobFault::Gone(_))) => BlobPart::fault(get, "blob_not_found", fault.to_string()),
        Ok(Err(fault)) => BlobPart::fault(get, "unavailable", fault.to_string()),
        Err(_) => BlobPart::fault(get, "internal", "what keeps large results panicked".to_owned()),
    }
}
