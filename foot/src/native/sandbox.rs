//! The sandbox of this run, from the rules and the places they are about.

use std::path::PathBuf;

use vance_foot_core::permissions::{Fence, Places, Policy};
use vance_mcp_host::env;
use vance_mcp_host::sandbox::Sandbox;
use vance_shared::show::plain;

/// What programs may reach: what this machine's programs need, the working directory, the roots for reading, and what the rules add.
pub(super) fn of(fence: &Fence, policy: &Policy, roots: &[std::path::PathBuf]) -> Sandbox {
    let places = policy.places();
    let mut sandbox = Sandbox::of_machine(&env::ambient());
    sandbox.read.extend(roots.iter().cloned());
    sandbox.read.extend(fence.read(places));
    sandbox.write.push(places.working_dir.clone());
    sandbox.write.extend(fence.write(places));
    for folder in left_open(&sandbox, places) {
        let shown = plain(&folder.to_string_lossy());
        if folder == places.home {
            tracing::error!(
                "the sandbox does not hide {shown}, since a folder around it is open to programs: what runs in it can read your tokens and tell this Foot what to do; move VANCE_HOME to a folder outside of the temporary folders, the working directory and the `roots`"
            );
        } else {
            tracing::warn!(
                "the sandbox does not hide {shown}, since a folder around it is open to programs; start in another working directory, or take that folder out of `roots` and `sandbox`"
            );
        }
    }
    sandbox
}

/// What no program should see and the sandbox cannot take out of what is open. The project's own `.vancetope` lies in the project, which has to be
/// open, and holds no secret; file tools still refuse it.
fn left_open(sandbox: &Sandbox, places: &Places) -> Vec<PathBuf> {
    let projects = places.working_dir.join(".vancetope");
    let mut folders: Vec<PathBuf> = places.floor_folders();
    folders.sort();
    folders.dedup();
    let is_home = |folder: &PathBuf| {
        *folder == places.home || places.user_home.as_ref().is_some_and(|user| *folder == user.join(".vancetope"))
    };
    folders.retain(|folder| sandbox.opens(folder) && (*folder != projects || is_home(folder)));
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_that_the_sandbox_cannot_hide_is_named() {
        let of = |home: &str, user: &str, project: &str| {
            let places = Places {
                user_home: Some(user.into()),
                home: home.into(),
                working_dir: project.into(),
                ..Places::default()
            };
            let sandbox = Sandbox { read: Vec::new(), write: vec!["/tmp".into(), project.into()] };
            left_open(&sandbox, &places).iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(of("/home/me/.vancetope", "/home/me", "/home/me/repo"), none);
        assert_eq!(of("/tmp/v", "/home/me", "/home/me/repo"), ["/tmp/v"]);
        assert_eq!(of("/home/me/repo/.vancetope", "/home/me", "/home/me/repo"), ["/home/me/repo/.vancetope"]);
        // In one's own home directory everything lies in the open.
        let all = [".aws", ".gnupg", ".ssh", ".vancetope"].map(|name| format!("/home/me/{name}"));
        assert_eq!(of("/home/me/.vancetope", "/home/me", "/home/me"), all);
        assert_eq!(of("/tmp/u/.vancetope", "/tmp/u", "/home/me/repo").len(), 4);
    }
}
