//! What is too large to travel is read in pieces, each asked for.

use serde::{Deserialize, Serialize};

use crate::call::Fault;
use crate::ids::BlobHandle;

/// Give a piece of what you keep. One piece is one frame, so whoever reads slowly is sent slowly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobGet {
    /// Comes back in the answer.
    pub request: u64,
    /// Of what.
    pub handle: BlobHandle,
    /// From here.
    pub offset: u64,
    /// So many bytes, at most [`crate::limits::BLOB_PIECE_BYTES`].
    pub length: usize,
}

/// The piece.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobPart {
    /// Of the question.
    pub request: u64,
    /// Of what.
    pub handle: BlobHandle,
    /// From here.
    #[serde(default)]
    pub offset: u64,
    /// Of the whole, in bytes.
    #[serde(default)]
    pub size: u64,
    /// What it is.
    #[serde(default)]
    pub media_type: String,
    /// Digest of the whole.
    #[serde(default)]
    pub sha256: String,
    /// Base64. Shorter than asked for only at the end.
    #[serde(default)]
    pub data: String,
    /// In place of all that: why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
}

impl BlobPart {
    /// There is none.
    pub fn fault(get: BlobGet, code: &str, message: String) -> Self {
        let BlobGet { request, handle, offset, .. } = get;
        let (size, media_type, sha256, data) = (0, String::new(), String::new(), String::new());
        Self { request, handle, offset, size, media_type, sha256, data, error: Some(Fault::new(code, message)) }
    }
}
