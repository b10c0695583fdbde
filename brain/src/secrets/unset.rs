//! Secrets that files name and nobody has set: what they are, where they stand, and what to type.

use std::collections::BTreeSet;
use std::path::Path;

use vance_brain_core::config::BrainConfig;
use vance_shared::doc::Problem;
use vance_shared::pack::PackBody;
use vance_shared::secrets;

use super::Vault;
use crate::home::{Home, Loaded};

/// One problem for each place. A vault that cannot be read is one, too, where something needs it.
pub fn find(home: &Home, loaded: &Loaded) -> Vec<Problem> {
    let mut wanted: Vec<(String, String)> = Vec::new();
    for pack in loaded.packs.iter().filter(|pack| pack.enabled) {
        if let PackBody::Launch(plan) = &pack.body {
            wanted.extend(secrets::of_plan(plan).into_iter().map(|name| (plan.source.file.clone(), name)));
        }
    }
    let config = home.config().display().to_string();
    wanted.extend(of_config(loaded.config.as_ref()).into_iter().map(|name| (config.clone(), name)));
    if wanted.is_empty() {
        return Vec::new();
    }
    let set: BTreeSet<String> = match Vault::new(&home.data()).list() {
        Ok(listed) => listed.into_iter().map(|secret| secret.name).collect(),
        Err(error) => return vec![Problem::new(home.data().display().to_string(), 1, error.to_string())],
    };
    let unset = wanted.into_iter().filter(|(_, name)| !set.contains(name));
    let problem = |(file, name): (String, String)| {
        let line = line_of(Path::new(&file), &name);
        let text = format!("the secret {name} is not set: run `vance-brain secret set {name}`");
        Problem::new(file, line, text)
    };
    unset.map(problem).collect()
}

fn of_config(config: Option<&BrainConfig>) -> BTreeSet<String> {
    let Some(config) = config else { return BTreeSet::new() };
    let providers = config.providers.values().filter_map(|provider| provider.api_key.as_ref());
    let search = config.web_search.iter().filter_map(|search| search.api_key.as_ref());
    providers.chain(search).filter_map(|key| key.secret()).map(str::to_owned).collect()
}

/// Where the reference stands; the first line if the file is another one by now.
fn line_of(file: &Path, name: &str) -> u32 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let reference = format!("{}{name}{}", secrets::OPEN, secrets::CLOSE);
    let before = text.lines().take_while(|line| !line.contains(&reference)).count();
    if before < text.lines().count() { u32::try_from(before + 1).unwrap_or(1) } else { 1 }
}
