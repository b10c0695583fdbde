//! What the stories share: homes, processes, the API, a cutting proxy, an effects ledger.

pub mod api;
pub mod home;
pub mod ledger;
pub mod process;
pub mod proxy;
pub mod sim;
pub mod socket;
pub mod summary;
pub mod toy;
pub mod wait;
pub mod world;
