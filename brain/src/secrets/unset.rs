//! Secrets that files name and that cannot be had: nobody has set them, or they do not open. What they are, where they stand, what to type.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use vance_brain_core::config::BrainConfig;
use vance_shared::doc::Problem;
use vance_shared::pack::PackBody;
use vance_shared::secrets;

use super::Vault;
use crate::home::{Home, Loaded};

/// One problem for each place. A vault that cannot be read is a problem of its own, which [`crate::home::load`] tells.
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
    let Ok(listed) = Vault::new(&home.data()).list() else { return Vec::new() };
    let set: BTreeMap<String, Option<String>> =
        listed.into_iter().map(|secret| (secret.name, secret.trouble)).collect();
    let problem = |(file, name): (String, String)| {
        let text = match set.get(&name) {
            Some(None) => return None,
            Some(Some(trouble)) => trouble.clone(),
            None => format!("the secret {name} is not set: run `vance-brain secret set {name}`"),
        };
        Some(Problem::new(file.clone(), line_of(Path::new(&file), &name), text))
    };
    wanted.into_iter().filter_map(problem).collect()
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
