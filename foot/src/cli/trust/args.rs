//! The words of `vancetope trust`.

use clap::{Args, Subcommand};
use vance_shared::gate::Digest;
use vance_shared::names::PackName;

pub(in crate::cli) const EXAMPLES: &str = "\
Examples:
  vancetope trust                          what is allowed and denied, and what of this folder waits for an answer
  vancetope trust show chrome              what a pack of this folder would run, and its digest
  vancetope trust review                   be asked about everything that waits
  vancetope trust revoke chrome            ask again before it is loaded here; stops it where it runs
  vancetope trust revoke --all             start over
  vancetope trust allow --pack chrome --digest sha256:4f2a…   without a terminal, for CI

Nothing here starts a pack or reaches its server. There is no way to trust everything.";

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum TrustCommand {
    /// List what is allowed and denied, and what of this folder waits (the default)
    List,
    /// Show what a pack of this folder would run or reach, and whether it may
    Show {
        // Not `name`: that is the Foot's own, everywhere.
        #[arg(value_name = "NAME", value_parser = PackName::parse)]
        pack: PackName,
    },
    /// Be asked about every pack of this folder that waits, and about tools that changed
    Review,
    /// Take consent back
    Revoke(RevokeArgs),
    /// Never load a pack of this folder, and do not ask either
    Deny {
        #[arg(value_name = "NAME", value_parser = PackName::parse)]
        pack: PackName,
    },
    /// End a denial: the pack asks again
    Undeny {
        #[arg(value_name = "NAME", value_parser = PackName::parse)]
        pack: PackName,
    },
    /// Forget folders that are gone
    Prune,
    /// Show every decision, and check that none was taken out
    Log,
    /// Allow a pack of this folder without a terminal, by its full digest
    Allow {
        /// The pack
        #[arg(long, value_name = "NAME", value_parser = PackName::parse)]
        pack: PackName,
        /// Its digest, as `vancetope trust show` prints it
        #[arg(long, value_name = "sha256:DIGEST", value_parser = Digest::parse)]
        digest: Digest,
    },
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(in crate::cli) struct RevokeArgs {
    /// One pack of this folder
    #[arg(value_name = "NAME", value_parser = PackName::parse)]
    pub(super) pack: Option<PackName>,

    /// All packs of this folder
    #[arg(long)]
    pub(super) project: bool,

    /// All packs of all folders
    #[arg(long)]
    pub(super) all: bool,
}
