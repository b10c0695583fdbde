//! `vancetope packs`: pack files, looked at and written without starting anything.

use super::context::Context;
use super::failure::Failure;

mod add;
mod args;
mod check;
mod compare;
mod consent;
mod diff;
mod import;
pub(super) mod launch;
pub(super) mod list;
pub(super) mod shelf;

pub(super) use args::{EXAMPLES, PacksCommand};

/// Runs the command.
pub(super) async fn packs(context: &mut Context, command: &PacksCommand) -> Result<u8, Failure> {
    match command {
        PacksCommand::List => list::list(context),
        PacksCommand::Check(args) => check::check(context, args).await,
        PacksCommand::Add(args) => add::add(context, args),
        PacksCommand::Import(args) => import::import(context, args).await,
        PacksCommand::Diff { pack } => diff::diff(context, pack.as_ref()),
    }
}
