#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn vault() -> (tempfile::TempDir, Vault) {
    let dir = tempfile::tempdir().unwrap();
    let vault = Vault::new(&dir.path().join("data"));
    (dir, vault)
}

fn text(vault: &Vault) -> String {
    std::fs::read_to_string(vault.file()).unwrap()
}

#[test]
fn a_secret_is_set_read_listed_and_removed() {
    let (_dir, vault) = vault();
    assert_eq!(vault.list().unwrap(), []);
    let unset = vault.get("A").unwrap_err().to_string();
    assert_eq!(unset, "the secret A is not set: run `vance-brain secret set A`");
    vault.set("A", "hunter2", "t1").unwrap();
    vault.set("B", "x", "t2").unwrap();
    vault.set("A", "hunter3\nline", "t3").unwrap();
    assert_eq!(*vault.get("A").unwrap(), "hunter3\nline");
    let listed =
        |name: &str, version, at: &str| Listed { name: name.into(), version, changed_at: at.into(), trouble: None };
    assert_eq!(vault.list().unwrap(), [listed("A", 2, "t3"), listed("B", 1, "t2")]);
    assert!(vault.remove("A").unwrap() && !vault.remove("A").unwrap());
    assert!(vault.get("A").is_err());
    for (name, value) in [("", "x"), ("a b", "x"), (&"n".repeat(65), "x"), ("A", ""), ("A", &"x".repeat(65_537))] {
        let error = vault.set(name, value, "").unwrap_err().to_string();
        assert!(!error.contains("xx"), "{error}");
    }
}

#[test]
fn nothing_at_rest_shows_a_value_and_only_the_owner_can_look() {
    let (dir, vault) = vault();
    vault.set("A", "hunter2-hunter2", "t").unwrap();
    vance_mcp_host::Vault::keep_login(&vault, "p-1", "refresh-token").unwrap();
    for entry in std::fs::read_dir(dir.path().join("data")).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("hunter2") && !text.contains("refresh-token"), "{text}");
    }
    assert!(!format!("{vault:?}").contains("hunter2"));
    // A secret and a login of one name are two things.
    vault.set("p-1", "x", "t").unwrap();
    assert_eq!(vance_mcp_host::Vault::login(&vault, "p-1").unwrap().as_deref(), Some("refresh-token"));
}

#[test]
fn records_that_were_exchanged_do_not_open() {
    let (_dir, vault) = vault();
    vault.set("A", "one", "t").unwrap();
    vault.set("B", "two", "t").unwrap();
    vault.set("C", "three", "t").unwrap();
    let first = vault.read().unwrap();
    let write = |records: &Records| std::fs::write(vault.file(), serde_json::to_string(records).unwrap()).unwrap();
    let mut exchanged = vault.read().unwrap();
    let of_kind = exchanged.0.get_mut(SECRET).unwrap();
    let (a, b) = (of_kind["A"].clone(), of_kind["B"].clone());
    of_kind.insert("A".into(), b.clone());
    of_kind.insert("B".into(), a.clone());
    write(&exchanged);
    assert!(matches!(vault.get("A"), Err(VaultError::Broken { .. })));
    // The key of the one with the value of the other, and an old value under a new version.
    for forged in [Record { key: b.key.clone(), ..a.clone() }, Record { version: 2, ..a.clone() }] {
        let mut records = vault.read().unwrap();
        records.0.get_mut(SECRET).unwrap().insert("A".into(), forged);
        write(&records);
        let error = vault.get("A").unwrap_err();
        assert!(matches!(error, VaultError::Broken { .. }), "{error}");
    }
    write(&first);
    assert_eq!(*vault.get("A").unwrap(), "one");
}

#[test]
fn rotation_changes_the_master_key_and_no_value() {
    let (dir, vault) = vault();
    vault.set("A", "one", "t").unwrap();
    vault.set("B", "two", "t").unwrap();
    let names = BTreeSet::from(["A".to_owned(), "B".to_owned(), "C".to_owned()]);
    let (before, marks) = (vault.read().unwrap(), vault.marks(&names).unwrap());
    let old = std::fs::read(dir.path().join("data/master.key")).unwrap();
    assert_eq!(vault.rotate().unwrap(), 2);
    let after = vault.read().unwrap();
    let (a, b) = (&before.0[SECRET]["A"], &after.0[SECRET]["A"]);
    assert!(a.value == b.value && a.key != b.key && a.master != b.master);
    assert_eq!((vault.marks(&names).unwrap(), marks["C"]), (marks, 0), "nobody is restarted");
    assert_eq!(*vault.get("B").unwrap(), "two");
    assert_eq!(vault.master.read().unwrap().len(), 1);
    // The old key opens nothing any more.
    std::fs::write(dir.path().join("data/master.key"), old).unwrap();
    assert!(matches!(vault.get("A"), Err(VaultError::NoMaster { .. })));
    vault.set("A", "three", "t").unwrap();
    assert_eq!(*vault.get("A").unwrap(), "three");
}

#[test]
fn a_rotation_that_was_cut_off_leaves_everything_readable_and_the_next_one_tidies_up() {
    let (_dir, vault) = vault();
    vault.set("A", "one", "t").unwrap();
    // Cut off before the records were written.
    vault.master.add().unwrap();
    assert_eq!(*vault.get("A").unwrap(), "one");
    vault.set("B", "two", "t").unwrap();
    assert_eq!((*vault.get("A").unwrap()).clone() + &vault.get("B").unwrap(), "onetwo");
    assert_eq!((vault.rotate().unwrap(), vault.master.read().unwrap().len()), (2, 1));
    assert_eq!(*vault.get("A").unwrap(), "one");
}

#[test]
fn a_master_key_that_is_gone_is_said_and_not_replaced() {
    let (dir, vault) = vault();
    vault.set("A", "one", "t").unwrap();
    let key = dir.path().join("data/master.key");
    std::fs::rename(&key, dir.path().join("away")).unwrap();
    for error in [vault.get("A").unwrap_err(), vault.set("B", "x", "t").unwrap_err(), vault.rotate().unwrap_err()] {
        let error = error.to_string();
        assert!(error.contains("master.key") && error.contains("put that file back"), "{error}");
    }
    assert!(!key.exists());
    std::fs::rename(dir.path().join("away"), &key).unwrap();
    assert_eq!(*vault.get("A").unwrap(), "one");
}

#[test]
fn another_master_key_of_the_same_id_is_told_from_a_record_that_was_touched() {
    let (dir, vault) = vault();
    vault.set("A", "one", "t").unwrap();
    vance_mcp_host::Vault::keep_login(&vault, "p-1", "token").unwrap();
    let key = dir.path().join("data/master.key");
    let right = std::fs::read_to_string(&key).unwrap();
    let mut file: serde_json::Value = serde_json::from_str(&right).unwrap();
    file["keys"][0]["key"] = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".into();
    std::fs::write(&key, file.to_string()).unwrap();
    for error in [vault.get("A").unwrap_err(), vault.set("B", "x", "t").unwrap_err(), vault.rotate().unwrap_err()] {
        assert!(error.to_string().contains("put that file back"), "{error}");
    }
    let trouble = |listed: &[Listed]| listed.iter().filter(|it| it.trouble.is_some()).count();
    assert_eq!((trouble(&vault.list().unwrap()), trouble(&vault.logins().unwrap())), (1, 1));
    std::fs::write(&key, right).unwrap();
    assert_eq!((trouble(&vault.list().unwrap()), trouble(&vault.logins().unwrap())), (0, 0));
    assert_eq!(*vault.get("A").unwrap(), "one");
}

#[test]
fn a_login_that_is_lost_with_its_key_stands_in_nobodys_way() {
    let (dir, vault) = vault();
    let login = |vault: &Vault| vance_mcp_host::Vault::login(vault, "p-1").unwrap();
    vance_mcp_host::Vault::keep_login(&vault, "p-1", "token").unwrap();
    std::fs::remove_file(dir.path().join("data/master.key")).unwrap();
    assert_eq!(login(&vault), None, "somebody logs in again");
    vault.set("A", "one", "t").unwrap();
    assert_eq!(*vault.get("A").unwrap(), "one");
    assert_eq!(vault.logins().unwrap().len(), 1);
    assert!(vault.remove("p-1").unwrap() && vault.logins().unwrap().is_empty());
    vance_mcp_host::Vault::keep_login(&vault, "p-1", "another").unwrap();
    assert_eq!(login(&vault).as_deref(), Some("another"));
}

#[test]
fn a_mark_changes_with_each_value_also_over_a_removal() {
    let (_dir, vault) = vault();
    let names = BTreeSet::from(["A".to_owned()]);
    let mut seen = BTreeSet::new();
    for round in 0..3 {
        assert!(seen.insert(vault.marks(&names).unwrap()["A"]) || round > 0);
        vault.set("A", "same", "t").unwrap();
        assert!(seen.insert(vault.marks(&names).unwrap()["A"]));
        vault.remove("A").unwrap();
    }
    std::fs::write(vault.file(), "{").unwrap();
    assert!(
        vault.marks(&names).is_err() && vault.is_readable().is_err(),
        "it says nothing, rather than that all are gone"
    );
    std::fs::write(vault.file(), r#"{"secret": {}}"#).unwrap();
    assert!(text(&vault).contains("secret"));
}

#[test]
fn writers_at_the_same_time_lose_nothing() {
    let (_dir, vault) = vault();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let vault = &vault;
            scope.spawn(move || {
                for n in 0..5 {
                    vault.set(&format!("w{writer}-{n}"), "x", "t").unwrap();
                    if n == 2 {
                        vault.rotate().unwrap();
                    }
                }
            });
        }
    });
    let listed = vault.list().unwrap();
    assert_eq!(listed.len(), 20);
    assert!(listed.iter().all(|secret| vault.get(&secret.name).is_ok()));
    assert_eq!(vault.master.read().unwrap().len(), 1);
}
