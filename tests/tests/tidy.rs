//! House rules that a machine can check: what the documents say is so, and what must stay absent is absent.
#![allow(missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;
use vance_brain_core::config::parse_config;
use vance_brain_core::registry_file::parse_registry;
use vance_brain_core::tree_file::parse_tree;
use vance_foot_core::permissions::parse_permissions;
use vance_shared::doc::{Problem, parse_yaml};
use vance_shared::gate::Book;
use vance_shared::launch::Origin;
use vance_shared::pack::parse_pack;
use vance_shared::wire::{Decoded, decode_to_brain, decode_to_foot};

/// The workspace's folder.
fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_owned()
}

fn read(name: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(root().join(name)).with_context(|| name.to_owned())
}

/// Every text file of the repository, by its path below the root.
fn files() -> anyhow::Result<BTreeMap<String, String>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![root()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.strip_prefix(root())?.display().to_string();
            if path.is_dir() {
                if !["target", ".git", "node_modules"].iter().any(|skip| path.ends_with(skip)) {
                    folders.push(path);
                }
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                found.insert(name, text);
            }
        }
    }
    Ok(found)
}

/// Members of the workspace: folder and manifest.
fn manifests() -> anyhow::Result<Vec<(String, String)>> {
    let text = read("Cargo.toml")?;
    let members = text.split_once("members = [").context("members")?.1.split_once(']').context("members end")?.0;
    members
        .split(',')
        .map(|m| m.trim().trim_matches('"'))
        .map(|m| Ok((m.to_owned(), read(&format!("{m}/Cargo.toml"))?)))
        .collect()
}

/// `(name, line)` of each dependency of one kind.
fn dependencies<'a>(manifest: &'a str, kind: &str) -> Vec<(&'a str, &'a str)> {
    let lines = manifest.lines().skip_while(|line| *line != format!("[{kind}]")).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('[')).filter(|line| !line.trim().is_empty());
    lines.map(|line| (line.split(['.', ' ', '=']).next().unwrap_or(line), line)).collect()
}

/// Fenced blocks of one language in README and docs: where, and what.
fn blocks(language: &str) -> anyhow::Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for (name, text) in files()? {
        if name != "README.md" && !name.starts_with("docs/") {
            continue;
        }
        let mut open: Option<(usize, String)> = None;
        for (index, line) in text.lines().enumerate() {
            match &mut open {
                Some((at, block)) if line.starts_with("```") => {
                    found.push((format!("{name}:{at}"), std::mem::take(block)));
                    open = None;
                }
                Some((_, block)) => {
                    block.push_str(line);
                    block.push('\n');
                }
                None if line.trim_end() == format!("```{language}") => open = Some((index + 1, String::new())),
                // Another language: its lines pass as text, its end opens nothing.
                None => {}
            }
        }
    }
    Ok(found)
}

#[test]
fn paths_named_in_architecture_exist() -> anyhow::Result<()> {
    let text = read("ARCHITECTURE.md")?;
    let tree = text.split("```").nth(1).context("the tree")?;
    let mut named: Vec<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(named.len() >= 8, "the tree is read: {named:?}");
    let inline = text.split('`').skip(1).step_by(2);
    named.extend(inline.filter(|word| word.contains('/') && !word.contains([' ', '{', '…', '\n', '<'])));
    let missing: Vec<&str> = named.into_iter().filter(|path| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names what is not there: {missing:?}");
    Ok(())
}

#[test]
fn what_people_expect_at_the_top_is_there() {
    for name in [
        "Cargo.lock",
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "LICENSE",
        "Makefile",
        "clippy.toml",
        "deny.toml",
        "rust-toolchain.toml",
        ".ci/run",
        "examples",
        "docs",
    ] {
        assert!(root().join(name).exists(), "{name}");
    }
}

#[test]
fn cores_have_no_dependency_that_does_io_and_touch_no_clock_file_or_environment() -> anyhow::Result<()> {
    let pure = ["vance-shared", "serde", "serde_json", "minijinja", "strsim", "thiserror", "globset"];
    let shared = [
        "serde",
        "serde_json",
        "thiserror",
        "uuid",
        "saphyr-parser",
        "jsonc-parser",
        "strsim",
        "jsonschema",
        "base64",
        "fastrand",
        "sha2",
        "memchr",
    ];
    let rest = [
        "vance-shared",
        "serde_json",
        "thiserror",
        "saphyr-parser",
        "openapiv3",
        "url",
        "percent-encoding",
        "httpdate",
        "base64",
    ];
    let cores = [("brain/core", &pure[..]), ("foot/core", &pure), ("shared", &shared), ("shared/rest", &rest)];
    for (folder, allowed) in cores {
        let manifest = read(&format!("{folder}/Cargo.toml"))?;
        for (name, _) in dependencies(&manifest, "dependencies") {
            assert!(allowed.contains(&name), "{folder} depends on {name}: is it free of I/O? Then add it here");
        }
    }
    let impure = [
        "std::fs",
        "std::env",
        "std::process",
        "std::thread",
        "std::net::Tcp",
        "Instant::now",
        "SystemTime",
        "async fn",
    ];
    let core = |name: &str| {
        ["brain/core/src", "foot/core/src", "shared/src", "shared/rest/src"]
            .iter()
            .any(|folder| name.starts_with(folder))
    };
    let mut found = Vec::new();
    for (name, text) in files()?.into_iter().filter(|(name, _)| core(name)) {
        found.extend(impure.iter().filter(|word| text.contains(**word)).map(|word| format!("{name}: {word}")));
    }
    assert!(found.is_empty(), "decisions get such things from their caller: {found:?}");
    Ok(())
}

#[test]
fn only_the_supervision_layer_touches_the_insides_of_the_actor_library() -> anyhow::Result<()> {
    let inside = concat!("actix::", "dev");
    let others: Vec<String> = files()?
        .into_iter()
        .filter(|(name, text)| name.ends_with(".rs") && !name.starts_with("shared/supervise/") && text.contains(inside))
        .map(|(name, _)| name)
        .collect();
    assert!(others.is_empty(), "{others:?}");
    Ok(())
}

#[test]
fn nobody_but_these_tests_depends_on_the_programs() -> anyhow::Result<()> {
    // A simulation runs both programs' actors in one process.
    for (folder, manifest) in manifests()?.into_iter().filter(|(folder, _)| folder != "tests") {
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for (name, _) in dependencies(&manifest, kind) {
                assert!(!["vance-brain", "vance-foot"].contains(&name), "{folder} depends on {name}");
            }
        }
    }
    Ok(())
}

#[test]
fn each_dependency_is_used_and_says_what_for() -> anyhow::Result<()> {
    let files = files()?;
    let mut wrong = Vec::new();
    for (folder, manifest) in manifests()? {
        for kind in ["dependencies", "dev-dependencies"] {
            for (name, line) in dependencies(&manifest, kind) {
                let crate_name = name.replace('-', "_");
                let word = |text: &str| {
                    let ends = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
                    text.match_indices(&crate_name).any(|(at, found)| {
                        ends(text[..at].chars().next_back()) && ends(text[at + found.len()..].chars().next())
                    })
                };
                let own = |file: &str| {
                    file.ends_with(".rs")
                        && ["src", "tests", "benches"].iter().any(|part| file.starts_with(&format!("{folder}/{part}/")))
                };
                // The actor library's derive names it in what it writes.
                let used = |text: &str| word(text) || (name == "actix" && text.contains("derive(Message)"));
                if !files.iter().any(|(file, text)| own(file) && used(text)) {
                    wrong.push(format!("{folder}: {name} is not used"));
                }
                if !line.contains(" # ") {
                    wrong.push(format!("{folder}: {name} does not say what for"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn every_frame_with_a_golden_file_stands_on_the_wires_page_and_the_other_way_round() -> anyhow::Result<()> {
    let mut golden = BTreeSet::new();
    for (name, text) in files()? {
        if name.starts_with("shared/src/wire/golden/") {
            let frame: Value = serde_json::from_str(&text).with_context(|| name.clone())?;
            golden.insert(frame["type"].as_str().with_context(|| name)?.to_owned());
        }
    }
    let page = read("docs/wire.md")?;
    let table =
        page.lines().skip_while(|line| !line.starts_with("| frame")).skip(2).take_while(|line| line.starts_with('|'));
    let cells = table.filter_map(|line| line.split('|').nth(1)).map(|cell| cell.split('`').skip(1).step_by(2));
    let described: BTreeSet<String> = cells.flatten().map(str::to_owned).collect();
    assert_eq!(golden, described);
    Ok(())
}

fn said(problems: &[Problem]) -> String {
    problems.iter().map(|p| format!("{p}\n")).collect()
}

#[test]
fn yaml_examples_are_accepted_by_the_reader_of_their_file() -> anyhow::Result<()> {
    let mut kinds = BTreeSet::new();
    for (place, text) in blocks("yaml")? {
        let node = parse_yaml(&place, &text).map_err(|problems| anyhow::anyhow!(said(&problems)))?;
        let has = |keys: &[&str]| keys.iter().any(|key| node.get(key).is_some());
        let (kind, problems) = match &node {
            _ if has(&["tasks"]) => ("tree", parse_tree(&place, &text).err()),
            _ if has(&["tools"]) => ("registry", parse_registry(&place, &text).err()),
            _ if has(&["allow", "ask", "deny", "roots", "sandbox"]) => {
                ("permissions", parse_permissions(&place, &text).err())
            }
            _ if has(&["toolPacks"]) => {
                let problems = vance_foot_core::config::parse_config(&place, &text).problems;
                ("selection", (!problems.is_empty()).then_some(problems))
            }
            _ if has(&["trustedPacks"]) => ("trust store", Book::parse(&place, &text).err()),
            _ => ("configuration", parse_config(&place, &text).err()),
        };
        assert!(problems.is_none(), "{kind}:\n{}", said(&problems.unwrap_or_default()));
        kinds.insert(kind);
    }
    let missing: Vec<&str> = ["configuration", "permissions", "registry", "selection", "tree"]
        .into_iter()
        .filter(|kind| !kinds.contains(kind))
        .collect();
    assert!(missing.is_empty(), "no example of {missing:?}");
    Ok(())
}

#[test]
fn json_examples_are_packs_or_frames() -> anyhow::Result<()> {
    let (mut packs, mut frames) = (0, 0);
    for (place, text) in blocks("json")? {
        let text: String =
            text.lines().filter(|line| !line.trim_start().starts_with("//")).map(|l| format!("{l}\n")).collect();
        let value: Value = serde_json::from_str(&text).with_context(|| place.clone())?;
        if value.get("parameters").is_some() {
            // Secrets are the Brain's.
            let origin = if text.contains("{{secret:") { Origin::Server } else { Origin::Global };
            let parsed = parse_pack(&place, &text, origin);
            assert!(
                parsed.pack.is_some() && parsed.warnings.is_empty(),
                "{}{}",
                said(&parsed.problems),
                said(&parsed.warnings)
            );
            packs += 1;
        } else {
            let frame = matches!(decode_to_brain(&text), Decoded::Frame(_))
                || matches!(decode_to_foot(&text), Decoded::Frame(_));
            assert!(frame, "{place}: neither a pack nor a frame");
            frames += 1;
        }
    }
    assert!(packs >= 2 && frames >= 1, "{packs} packs, {frames} frames");
    Ok(())
}

#[test]
fn every_test_that_the_guarantees_name_exists() -> anyhow::Result<()> {
    let page = read("docs/guarantees.md")?;
    let inline = page.split('`').skip(1).step_by(2);
    // A sentence with underscores is a test's name.
    let named: BTreeSet<&str> =
        inline.filter(|word| !word.contains([' ', '=', '/']) && word.matches('_').count() > 1).collect();
    assert!(named.len() > 40, "the page is read: {named:?}");
    let files = files()?;
    let code: Vec<&String> = files.iter().filter(|(name, _)| name.ends_with(".rs")).map(|(_, text)| text).collect();
    // As a function, or as a line of a macro that makes functions.
    let exists = |name: &str| {
        code.iter().any(|text| text.contains(&format!("fn {name}(")) || text.contains(&format!("\n    {name} ")))
    };
    let missing: Vec<&str> = named.into_iter().filter(|name| !exists(name)).collect();
    assert!(missing.is_empty(), "docs/guarantees.md names tests that are not there: {missing:#?}");
    Ok(())
}

#[test]
fn links_between_the_documents_lead_somewhere() -> anyhow::Result<()> {
    let mut broken = Vec::new();
    for (name, text) in files()? {
        if !name.ends_with(".md") {
            continue;
        }
        let folder = Path::new(&name).parent().unwrap_or(Path::new("")).to_owned();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or(link);
            if !target.is_empty() && !target.contains(':') && !root().join(&folder).join(target).exists() {
                broken.push(format!("{name}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:?}");
    Ok(())
}

#[test]
fn nothing_is_left_to_do_and_no_path_of_one_machine_is_in_here() -> anyhow::Result<()> {
    // In two parts each, so that this file does not hold them.
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("/ro", "ot/"),
        concat!("../", "shared/"),
        concat!("iss", "ue #"),
        concat!("\"/wo", "rk/"),
        concat!("'/wo", "rk/"),
        concat!(" /wo", "rk/"),
    ];
    let mut found = Vec::new();
    for (name, text) in files()? {
        for (index, line) in text.lines().enumerate() {
            // A workspace of its own names what it reads by its place.
            if name == "fuzz/Cargo.toml" && line.contains("path = ") {
                continue;
            }
            for word in words.iter().filter(|word| line.contains(**word)) {
                found.push(format!("{name}:{}: {word}", index + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}

#[test]
fn the_lock_file_knows_one_registry() -> anyhow::Result<()> {
    let lock = read("Cargo.lock")?;
    let sources: BTreeSet<&str> = lock.lines().filter_map(|line| line.strip_prefix("source = ")).collect();
    assert_eq!(sources.into_iter().collect::<Vec<_>>(), ["\"registry+https://github.com/rust-lang/crates.io-index\""]);
    for banned in ["aws-lc-rs", "openssl-sys", "actix-web", "serde_yaml"] {
        assert!(!lock.contains(&format!("name = \"{banned}\"\n")), "{banned} came in");
    }
    Ok(())
}
