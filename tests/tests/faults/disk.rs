//! Disks that are full or away, and files that are damaged.

use std::path::Path;

use serde_json::json;
use tokio::time::{Duration, sleep};
use vance_tests::api::Api;
use vance_tests::home::Home;
use vance_tests::process::{Brain, Process, foot, run};
use vance_tests::toy::Toy;
use vance_tests::wait::until;

/// A small disk below a home. Unmounted when it goes.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    /// `None` where this test may not mount.
    fn mount(at: &Path, size: &str) -> anyhow::Result<Option<Self>> {
        std::fs::create_dir_all(at)?;
        let options = format!("size={size}");
        let flags = nix::mount::MsFlags::empty();
        match nix::mount::mount(Some("tmpfs"), at, Some("tmpfs"), flags, Some(options.as_str())) {
            Ok(()) => Ok(Some(Self(at.to_owned()))),
            Err(nix::errno::Errno::EPERM | nix::errno::Errno::EACCES) => {
                eprintln!("this test needs the right to mount; it was left out");
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Takes all the room there is.
    fn fill(&self) -> anyhow::Result<()> {
        use std::io::Write as _;
        let mut file = std::fs::File::create(self.0.join("ballast"))?;
        while file.write_all(&[0; 4096]).is_ok() {}
        while file.write_all(&[0]).is_ok() {}
        Ok(())
    }

    fn make_room(&self) -> anyhow::Result<()> {
        Ok(std::fs::remove_file(self.0.join("ballast"))?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH).ok();
    }
}

#[tokio::test]
async fn a_full_disk_of_the_brain_delays_and_loses_nothing() -> anyhow::Result<()> {
    let home = Home::new()?;
    let Some(disk) = SmallDisk::mount(&home.path().join("brain/data"), "4m")? else { return Ok(()) };
    let toy = Toy::new(&home)?;
    toy.for_foot(&home)?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let _foot = foot(&home, &brain.url, &[]).await?;
    api.until_available("default.local", "toy__effect").await?;
    let tree = api
        .submit(
            r"
tasks:
- id: a
  steps:
  - {call: toy__effect, with: {name: one., ms: 1500}}
  - {call: toy__effect, with: {name: two.}}
  - {call: now}
- {id: b, depends_on: [a], steps: [{call: now}]}
",
        )
        .await?;
    until("the first step runs", || async { Ok((toy.begun_of("one.")? == 1).then_some(())) }).await?;
    disk.fill()?;
    // New work is refused with a reason while nothing can be stored.
    let (status, body) = api
        .submit_raw(&format!("tasks:\n- {{id: x, goal: \"{}\", steps: [{{call: now}}]}}\n", "g".repeat(200_000)), &[])
        .await?;
    assert_eq!((status, body["error"]["code"].as_str()), (503, Some("store_full")), "{body}");
    until("the first step ended", || async {
        let ended = std::fs::read_to_string(toy.file())?.contains("end one.");
        Ok(ended.then_some(()))
    })
    .await?;
    sleep(Duration::from_millis(1_000)).await;
    assert_eq!(toy.begun_of("two.")?, 0, "no effect before its event is stored");
    let (status, body) = api.get("/readyz").await?;
    println!("readyz while full: {status} {body}");
    disk.make_room()?;
    tree.until("b", "completed").await?;
    assert_eq!((toy.begun_of("one.")?, toy.begun_of("two.")?), (1, 1));
    until("ready again", || async { Ok((api.get("/readyz").await?.0 == 200).then_some(())) }).await?;
    Ok(())
}

#[tokio::test]
async fn a_full_disk_of_the_foot_runs_nothing_unsafe_and_goes_on_when_there_is_room() -> anyhow::Result<()> {
    let home = Home::new()?;
    let toy = Toy::new(&home)?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let laptop = Home::beside(&home)?;
    toy.for_foot(&laptop)?;
    let Some(disk) = SmallDisk::mount(&laptop.path().join("state"), "4m")? else { return Ok(()) };
    let mut first = foot(&laptop, &brain.url, &[]).await?;
    api.until_available("default.local", "toy__effect").await?;
    let before =
        api.submit("tasks:\n- {id: a, steps: [{call: toy__effect, with: {name: before., ms: 1000}, as: r}]}\n").await?;
    until("it runs", || async { Ok((toy.begun_of("before.")? == 1).then_some(())) }).await?;
    disk.fill()?;
    // What ran when the disk filled still delivers its result.
    let done = before.until("a", "completed").await?;
    assert_eq!(done["output"]["r"]["text"], "did before.", "{done}");
    let mut during = Vec::new();
    for n in 0..40 {
        let (status, body) = api.call("toy__effect", &json!({"arguments": {"name": format!("during{n}.")}})).await?;
        assert_eq!(status, 200, "{body}");
        let outcome = body["call"]["outcome"].as_str().unwrap_or_default().to_owned();
        let begun = toy.begun_of(&format!("during{n}."))?;
        assert!(begun <= 1 && (outcome != "done" || begun == 1), "{body}");
        during.push(format!("{outcome} {} {begun}", body["error"]["code"]));
    }
    during.dedup();
    println!("calls while the Foot's disk is full: {during:?}");
    disk.make_room()?;
    until("it goes on", || async {
        let (_, body) = api.call("toy__effect", &json!({"arguments": {"name": "after."}})).await?;
        Ok((body["call"]["outcome"] == "done").then_some(()))
    })
    .await?;
    first.kill9().await?;
    let _second = foot(&laptop, &brain.url, &[]).await?;
    let again = api.submit("tasks:\n- {id: a, steps: [{call: toy__effect, with: {name: again.}}]}\n").await?;
    again.until("a", "completed").await?;
    Ok(())
}

#[tokio::test]
async fn damaged_files_are_named_and_nothing_is_made_up() -> anyhow::Result<()> {
    let home = Home::new()?;
    let mut brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    for _ in 0..20 {
        api.submit("tasks:\n- {id: a, steps: [{call: now}]}\n").await?.until("a", "completed").await?;
    }
    brain.process.kill9().await?;
    let data = home.path().join("brain/data");
    let names: Vec<String> =
        std::fs::read_dir(&data)?.filter_map(|e| Some(e.ok()?.file_name().to_string_lossy().into_owned())).collect();
    println!("{names:?}");
    let file = names
        .iter()
        .find(|n| n.ends_with(".db") || n.ends_with(".sqlite"))
        .map(|n| data.join(n))
        .ok_or_else(|| anyhow::anyhow!("{names:?}"))?;
    std::fs::write(&file, "this is no database at all, but it is long enough to be taken for one ".repeat(200))?;
    for name in &names {
        if name.ends_with("-wal") || name.ends_with("-shm") {
            std::fs::remove_file(data.join(name))?;
        }
    }
    let ended = run("vance-brain", &home, &["serve", "--listen", "127.0.0.1:0"]).await?;
    assert_ne!(ended.code, 0);
    println!("{}", ended.stderr);
    assert!(ended.stderr.contains("brain/data"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);

    // A Foot with a damaged journal says so.
    let other = Home::new()?;
    let mut brain = Brain::start(&other).await?;
    let mut first = foot(&other, &brain.url, &[]).await?;
    first.kill9().await?;
    std::fs::write(other.path().join("state/client-0/journal.db"), "no journal ".repeat(2_000))?;
    for rest in ["journal.db-wal", "journal.db-shm"] {
        std::fs::remove_file(other.path().join("state/client-0").join(rest)).ok();
    }
    let mut second = Process::start("vancetope", &other, &["--daemon", "--brain", &brain.url])?;
    let ready = tokio::time::timeout(Duration::from_secs(5), second.line("foot ready")).await;
    println!("foot with a damaged journal: ready {}\n{}", matches!(ready, Ok(Ok(_))), second.log());
    assert!(second.log().contains("journal"), "{}", second.log());
    assert!(!second.log().contains("panicked"), "{}", second.log());
    brain.process.kill9().await?;
    Ok(())
}

#[tokio::test]
async fn a_foot_that_lost_its_journal_runs_nothing_unsafe_a_second_time() -> anyhow::Result<()> {
    for damaged in [true, false] {
        let home = Home::new()?;
        let toy = Toy::new(&home)?;
        toy.for_foot(&home)?;
        let brain = Brain::start(&home).await?;
        let api = Api::new(&home, &brain.url)?;
        let mut first = foot(&home, &brain.url, &[]).await?;
        let tree = api
            .submit(
                r"
tasks:
- {id: danger, steps: [{call: toy__effect, with: {name: danger, ms: 1000}}]}
- {id: safe, steps: [{call: toy__look, with: {name: safe, ms: 1000}}]}
",
            )
            .await?;
        until("both run", || async { Ok((toy.begun()?.len() == 2).then_some(())) }).await?;
        first.kill9().await?;
        let state = home.path().join("state/client-0");
        for file in ["journal.db-wal", "journal.db-shm", "journal.db"] {
            std::fs::remove_file(state.join(file)).ok();
        }
        if damaged {
            std::fs::write(state.join("journal.db"), "no journal ".repeat(2_000))?;
        }
        let _second = foot(&home, &brain.url, &[]).await?;
        tree.until("safe", "completed").await?;
        until("outcome unknown", || async {
            let task = tree.task("danger").await?;
            anyhow::ensure!(task["state"] != "completed", "damaged {damaged}: {task}");
            let reason = task["blocked_reason"].as_str().unwrap_or_default().to_owned();
            Ok(reason.starts_with("Outcome unknown for Tool: ").then_some(()))
        })
        .await?;
        assert_eq!((toy.begun_of("danger")?, toy.begun_of("safe")?), (1, 2), "damaged {damaged}");
        let (status, _) = tree.post("danger", "resolve", &json!({"as": "retry"})).await?;
        assert_eq!(status, 200);
        tree.until("danger", "completed").await?;
        assert_eq!(toy.begun_of("danger")?, 2);
    }
    Ok(())
}
