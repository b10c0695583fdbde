#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::super::tests::{Gate, plan, plan_of, project, stdio};
use super::*;

#[test]
fn local_files_that_a_command_names_are_found() {
    for (fields, wanted) in [
        (r#""command": ["node", "./tools/x.js"]"#, vec!["tools/x.js"]),
        (
            r#""command": ["./bin/server", "--config=conf/a.json", "-c", "b.toml"], "cwd": ".""#,
            vec!["bin/server", "conf/a.json", "b.toml"],
        ),
        (
            r#""command": ["node", "--require", "./a.cjs", "--import=./b.mjs", "-r./c.cjs", "lib/d"], "cwd": ".""#,
            vec!["a.cjs", "b.mjs", "c.cjs", "lib/d.js", "lib/d/index.js"],
        ),
        (
            r#""command": ["sh", "-c", "cd tools && PYTHONPATH=lib exec ./run.sh"], "cwd": ".""#,
            vec!["run.sh", "tools/run.sh", "tools/__init__.py", "lib"],
        ),
        (r#""command": ["python3", "-m", "pkg.server"], "cwd": ".""#, vec!["pkg/server.py", "pkg/server/__main__.py"]),
        (r#""command": ["python3", "-m", "server"], "cwd": ".""#, vec!["server.py", "server/__main__.py"]),
        (
            r#""command": ["node", "x.js"], "cwd": "sub", "env": {"NODE_OPTIONS": "--require ./hook.cjs"}"#,
            vec!["sub/x.js", "sub/hook.cjs"],
        ),
        (
            r#""command": ["x"], "cwd": ".", "env": {"CHROME_PATH": "./tools/chrome", "CONF": "a.ts"}"#,
            vec!["tools/chrome", "a.ts"],
        ),
        (r#""command": ["tsx", "./server"], "cwd": ".""#, vec!["server.ts", "server/index.ts"]),
        (r#""command": ["ruby", "-r./boot", "/usr/bin/x"], "cwd": ".""#, vec!["boot.rb"]),
        (r#""command": ["node", "--import", "file:///Users/me/src/repo/m.mjs"]"#, vec!["m.mjs"]),
        (r#""command": ["sh", "-c", "$VANCE_PROJECT_DIR/x.py"]"#, vec!["x.py"]),
        (r#""command": ["sh", "-c", "exec \"${VANCE_PROJECT_DIR}/a b/x\""]"#, vec!["a b/x"]),
        (r#""command": ["sh", "-c", "exec $PWD/x"], "cwd": "sub""#, vec!["sub/x"]),
        (r#""command": ["python3", "-mmod"], "cwd": ".""#, vec!["mod.py", "mod/__main__.py", "mod/__init__.py"]),
        (r#""command": ["python3", "-um", "a.b"], "cwd": ".""#, vec!["a/b.py", "a/b/__main__.py", "a/__init__.py"]),
        (r#""command": ["sh", "-c", "exec python3 -Bm mod"], "cwd": ".""#, vec!["mod.py"]),
        (
            r#""command": ["python3", "-m", "mod"], "env": {"PYTHONPATH": "lib:/Users/me/src/repo/more"}"#,
            vec!["lib/mod.py", "more/mod.py", "lib/sitecustomize.py"],
        ),
    ] {
        let found = files(&plan(&stdio("a", fields)), &project());
        for want in wanted {
            assert!(found.contains(&project().dir().join(want)), "{fields}: {want} in {found:?}");
        }
    }
    let found = files(&plan(&stdio("a", r#""command": ["/usr/bin/node", "/opt/x.js"]"#)), &project());
    assert!(found.contains(&"/opt/x.js".into()) && !found.contains(&"/usr/bin/node".into()), "{found:?}");
    assert_eq!(files(&plan(&stdio("a", r#""command": ["npx", "-y", "jira"]"#)), &project()), Vec::<PathBuf>::new());
    let found =
        files(&plan(&stdio("a", r#""command": ["x"], "cwd": ".", "env": {"M": "prod", "DB": "./a.db"}"#)), &project());
    assert_eq!(found, Vec::<PathBuf>::new(), "a mode and data");
    assert!(
        files(&plan_of(Origin::Global, "f", &stdio("a", r#""command": ["node", "./x.js"]"#)), &project()).is_empty()
    );
}

#[test]
fn a_prompt_says_what_it_does_not_watch() {
    let shown = |fields: &str| Gate::new().ask(&stdio("a", fields), &[]).text().to_owned();
    let text = shown(r#""command": ["sh", "-c", "cd sub && python3 s.py"]"#);
    assert_eq!(
        text.lines().skip(1).collect::<Vec<_>>(),
        [
            "  wants to run: sh -c 'cd sub && python3 s.py'",
            "  (!) runs a shell line: files that it finds by itself are not watched",
            "Load it? [1] once  [2] always for this project  [3] no ›",
        ]
    );
    assert!(
        shown(r#""command": ["npm", "start"], "cwd": ".""#).contains("  (!) may run what it finds in its directory")
    );
    assert!(!shown(r#""command": ["npm", "start"]"#).contains("(!)"));
    // As before, such a line is covered by an entry without a digest; one that names the project is not.
    let gate = Gate::with(
        "trustedPacks:\n  /Users/me/src/repo:\n  - {name: a, reach: \"sh -c 'cd /x && y'\"}\n  - {name: b, reach: \"sh -c '$VANCE_PROJECT_DIR/x'\"}\n",
    );
    assert!(gate.trusts(&stdio("a", r#""command": ["sh", "-c", "cd /x && y"]"#), &[]));
    assert!(!gate.trusts(&stdio("b", r#""command": ["sh", "-c", "$VANCE_PROJECT_DIR/x"]"#), &[]));
}

#[test]
fn a_program_of_the_project_counts_only_if_it_is_written_as_a_path() {
    let bare = plan(&stdio("a", r#""command": ["node"]"#));
    let path = plan(&stdio("a", r#""command": ["./bin/node"], "cwd": ".""#));
    let inside = Path::new("/Users/me/src/repo/bin/node");
    assert!(check_program(&bare, inside, &project()).is_err());
    assert!(check_program(&path, inside, &project()).is_ok());
    assert!(check_program(&bare, Path::new("/usr/bin/node"), &project()).is_ok());
}
