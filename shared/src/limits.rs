//! Limits of the wire, with their reasons.

use std::time::Duration;

/// First frame, before the handshake is over: a hello with a few hundred tools fits; more tools follow as `tools_changed`.
pub const HELLO_FRAME_BYTES: usize = 64 * 1024;
/// How long a socket may stay without its hello.
pub const HELLO_WAIT: Duration = Duration::from_secs(5);
/// One frame after the handshake.
pub const FRAME_BYTES: usize = 1024 * 1024;
/// One message, all parts together: the largest result that travels.
pub const MESSAGE_BYTES: usize = 8 * 1024 * 1024;
/// Payload of one part: leaves room for JSON escapes (at worst six bytes a character is rare; two is common) within a frame.
pub const PART_BYTES: usize = 128 * 1024;
/// What a Foot keeps of results that are too large to travel, and a Brain of those of its server tools: a few hundred screenshots.
pub const BLOBS_BYTES: u64 = 256 * 1024 * 1024;
/// One piece of what is kept: with its base64 a third of a frame, and a moment of a slow line.
pub const BLOB_PIECE_BYTES: usize = 256 * 1024;
/// Sessions that one client serves besides the one that it is attached to: a person's projects.
pub const ALSO_SESSIONS: usize = 64;
/// Read buffer of a socket: ten thousand idle sockets cost 40 MiB, not 1.3 GiB.
pub const SOCKET_BUFFER_BYTES: usize = 4 * 1024;
/// Unsent bytes of a socket before it counts as stuck.
pub const SOCKET_WRITE_BYTES: usize = 16 * 1024 * 1024;
/// Frames that wait for a socket; then the client is `busy`.
pub const OUTBOX_FRAMES: usize = 1024;
/// Calls in flight to one client; then a call is answered `busy`.
pub const INFLIGHT_CALLS: usize = 256;
/// Time between pings.
pub const HEARTBEAT: Duration = Duration::from_secs(10);
/// Silent heartbeats until the line counts as dead.
pub const HEARTBEAT_MISSES: u32 = 3;
/// Between the loss of a client and its tools leaving the session's registry.
pub const GRACE: Duration = Duration::from_secs(30);
/// A call's deadline unless its tool or task says otherwise.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// A question in the middle of a call waits this long for a person: over a night and a day. Meanwhile the call's deadline stands still.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(24 * 60 * 60);
/// Progress extends a deadline up to this many times the timeout.
pub const PROGRESS_CAP: u32 = 10;
