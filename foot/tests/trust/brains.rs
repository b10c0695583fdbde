//! A project that names a Brain.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use crate::desk::{Desk, Seat};

/// Something that listens like a Brain and writes down what it hears.
fn brain() -> (String, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let heard = Arc::new(Mutex::new(String::new()));
    let ear = Arc::clone(&heard);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut request, mut chunk) = (Vec::new(), [0; 4096]);
            while let Ok(n @ 1..) = stream.read(&mut chunk) {
                request.extend_from_slice(&chunk[..n]);
                if request.windows(4).any(|end| end == b"\r\n\r\n") {
                    break;
                }
            }
            ear.lock().unwrap().push_str(&String::from_utf8_lossy(&request));
            drop(
                stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"),
            );
        }
    });
    (url, heard)
}

const TASKS: &[&str] = &["tasks"];

fn seat(desk: &Desk, words: &[&str]) -> Seat {
    let mut command = desk.command(words);
    command.env("VANCE_TOKEN", "the-users-token");
    Seat::take(command)
}

#[test]
fn a_projects_brain_is_reached_only_after_a_yes_and_never_with_the_users_token() {
    let desk = Desk::new();
    let ((url, heard), (own, own_heard)) = (brain(), brain());
    desk.put("home/brain/local.token", "the-local-token\n");
    desk.put("repo/.vancetope/project.eddie.yaml", &format!("brain: {url}\n"));
    let hears = || std::mem::take(&mut *heard.lock().unwrap());
    for keys in ["3\n", "\n", "\u{4}"] {
        let ended = seat(&desk, TASKS).answers(keys);
        assert!(ended.text.contains(&format!("wants to reach: {url}/\n")), "{}", ended.text);
        assert_eq!(hears(), "", "{keys:?}: {}", ended.text);
    }
    // Nobody to ask, and who names a Brain themselves.
    let ended = desk.alone(TASKS);
    assert!(String::from_utf8_lossy(&ended.stderr).contains("needs consent"), "{ended:?}");
    seat(&desk, &["tasks", "--brain", &own]).leaves();
    assert!(own_heard.lock().unwrap().contains("the-users-token"));
    seat(&desk, &["tasks", "--no-local"]).leaves();
    assert_eq!(hears(), "");

    let ended = seat(&desk, TASKS).answers("2\n");
    let said = hears();
    assert!(said.starts_with("GET /api/v1/tasks"), "{said}: {}", ended.text);
    for _ in 0..2 {
        assert!(!said.to_lowercase().contains("authorization") && !said.contains("token"), "{said}");
        let again = seat(&desk, TASKS).leaves();
        assert!(!again.text.contains("Use it?"), "{}", again.text);
    }
    assert!(hears().starts_with("GET /api/v1/tasks"));
    let list = String::from_utf8(desk.alone(&["trust"]).stdout).unwrap();
    assert!(list.contains("(brain)") && list.contains(&url), "{list}");
    let (other, other_heard) = brain();
    desk.put("repo/.vancetope/project.eddie.yaml", &format!("brain: {other}\n"));
    let ended = seat(&desk, TASKS).answers("3\n");
    assert!(ended.text.contains("changed since you allowed it on 20"), "{}", ended.text);
    assert_eq!(*other_heard.lock().unwrap(), "");
    assert!(desk.alone(&["trust", "revoke", "--project"]).status.success());
    desk.put("repo/.vancetope/project.eddie.yaml", &format!("brain: {url}\n"));
    let ended = seat(&desk, TASKS).answers("3\n");
    assert!(ended.text.contains("Use it?") && !ended.text.contains("changed since"), "{}", ended.text);
}

#[test]
fn a_projects_brain_that_waits_is_listed_and_a_review_asks_about_it() {
    let desk = Desk::new();
    let (url, heard) = brain();
    desk.put("repo/.vancetope/project.eddie.yaml", &format!("brain: {url}\n"));
    let row = || {
        let list = desk.json(&["trust", "list"]);
        let row = list["packs"].as_array().unwrap().iter().find(|row| row["pack"] == "(brain)").cloned();
        row.map(|row| (row["state"].as_str().unwrap().to_owned(), row["reach"].as_str().unwrap().to_owned()))
    };
    let waits = Some(("waits".to_owned(), format!("{url}/")));
    assert_eq!(row(), waits);
    for keys in ["1\n", "3\n"] {
        let ended = desk.seat(&["trust", "review"]).answers(keys);
        assert!(ended.exit == 0 && ended.text.contains(&format!("wants to reach: {url}/\n")), "{}", ended.text);
        assert_eq!(row(), waits, "{keys:?}");
    }
    let ended = desk.seat(&["trust", "review"]).answers("2\n");
    assert_eq!(ended.exit, 0, "{}", ended.text);
    assert_eq!(row(), Some(("allowed".to_owned(), format!("{url}/"))));
    assert!(desk.seat(&["trust", "review"]).leaves().text.contains("nothing waits"));
    assert_eq!(*heard.lock().unwrap(), "", "a review reaches nothing");
}

#[test]
fn a_link_in_the_files_place_is_not_followed() {
    let desk = Desk::new();
    let (url, heard) = brain();
    desk.put("elsewhere.yaml", &format!("brain: {url}\n"));
    std::os::unix::fs::symlink(desk.path("elsewhere.yaml"), desk.repo(".vancetope/project.eddie.yaml")).unwrap();
    let ended = seat(&desk, TASKS).leaves();
    assert!(ended.text.contains("is a link") && !ended.text.contains("Use it?"), "{}", ended.text);
    assert_eq!(*heard.lock().unwrap(), "");
}
