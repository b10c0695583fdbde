//! Input and output schema of each native tool: closed objects, every field described.

use serde_json::{Value, json};

/// A closed object.
fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// A closed object that always has all its fields.
fn record(properties: Value) -> Value {
    let names: Vec<String> = properties.as_object().map(|o| o.keys().cloned().collect()).unwrap_or_default();
    json!({"type": "object", "properties": properties, "required": names, "additionalProperties": false})
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn flag(description: &str) -> Value {
    json!({"type": "boolean", "description": description})
}

fn number(minimum: u64, maximum: u64, description: &str) -> Value {
    json!({"type": "integer", "minimum": minimum, "maximum": maximum, "description": description})
}

fn count(description: &str) -> Value {
    json!({"type": "integer", "minimum": 0, "description": description})
}

fn maybe(kind: &str, description: &str) -> Value {
    json!({"type": [kind, "null"], "description": description})
}

fn path(what: &str) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 4096, "description": format!("{what}: relative to the working directory, absolute, or with ~/")})
}

fn real_path() -> Value {
    text("Absolute path, links resolved")
}

fn glob() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 1000, "description": "Only names that match, such as *.rs or src/**/*.md"})
}

pub(super) fn read() -> (Value, Value) {
    let input = object(
        json!({
            "path": path("The file"),
            "offset": count("First line, from 1; with base64 the first byte, from 0"),
            "limit": count("At most so many lines; with base64 bytes"),
            "max_bytes": number(1, 4 * 1024 * 1024, "At most so many bytes of the file, 1 MiB unless given"),
            "encoding": {"enum": ["utf-8", "base64"], "description": "base64 gives the bytes of any file; utf-8 unless given"},
        }),
        &["path"],
    );
    let output = record(json!({
        "path": real_path(),
        "size": count("Bytes of the whole file"),
        "truncated": flag("There is more than was given"),
        "encoding": {"enum": ["utf-8", "unknown-8bit", "base64"], "description": "unknown-8bit: bytes that are no UTF-8 were replaced"},
        "first_line": maybe("integer", "Number of the first line given; null with base64"),
        "lines": maybe("integer", "Lines given; null with base64"),
        "next_offset": maybe("integer", "offset to go on with, if there is more"),
    }));
    (input, output)
}

pub(super) fn write() -> (Value, Value) {
    let input = object(
        json!({
            "path": path("The file"),
            "content": text("The text"),
            "create_dirs": flag("Also create missing folders"),
            "append": flag("Add to the end instead of replacing"),
        }),
        &["path", "content"],
    );
    let output = record(json!({
        "path": real_path(),
        "bytes_written": count("Bytes of the text"),
        "size": count("Bytes of the file now"),
        "created": flag("The file did not exist before"),
    }));
    (input, output)
}

pub(super) fn edit() -> (Value, Value) {
    let input = object(
        json!({
            "path": path("The file"),
            "old_text": {"type": "string", "minLength": 1, "description": "The text to replace, exactly as it is in the file, blanks and line ends included"},
            "new_text": text("What takes its place"),
            "replace_all": flag("Replace every occurrence"),
        }),
        &["path", "old_text", "new_text"],
    );
    let output = record(json!({
        "path": real_path(),
        "replacements": count("Occurrences replaced"),
        "first_line": count("Line of the first"),
        "size": count("Bytes of the file now"),
    }));
    (input, output)
}

pub(super) fn list() -> (Value, Value) {
    let input = object(
        json!({
            "path": path("The folder; the working directory unless given"),
            "glob": glob(),
            "recursive": flag("Also what is in the folders below"),
            "limit": number(1, 10_000, "At most so many entries, 1000 unless given"),
            "include_ignored": flag("With recursive: also what .gitignore leaves out, and .git"),
        }),
        &[],
    );
    let entry = record(json!({
        "path": text("Relative to the folder"),
        "kind": {"enum": ["file", "directory", "link", "other"]},
        "size": maybe("integer", "Bytes of a file"),
        "modified_ms": maybe("integer", "Last change, in milliseconds since 1970"),
    }));
    let output = record(json!({
        "path": real_path(),
        "entries": {"type": "array", "items": entry},
        "truncated": flag("There are more"),
        "denied": count("Entries that rules keep closed"),
    }));
    (input, output)
}

pub(super) fn search() -> (Value, Value) {
    let input = object(
        json!({
            "pattern": {"type": "string", "minLength": 1, "maxLength": 10_000, "description": "A regular expression (Rust's syntax), matched line by line"},
            "literal": flag("The pattern is a plain text"),
            "ignore_case": flag("Upper and lower case are the same"),
            "path": path("The folder or file to search; the working directory unless given"),
            "glob": glob(),
            "limit": number(1, 2000, "At most so many matches, 200 unless given"),
            "context": number(0, 10, "Lines to show before and after each match"),
            "include_ignored": flag("Also what .gitignore leaves out, and .git"),
        }),
        &["pattern"],
    );
    let lines = json!({"type": "array", "items": {"type": "string"}});
    let hit = record(json!({
        "path": text("Relative to the folder"),
        "line": count("From 1"),
        "text": text("The line, at most 500 bytes of it"),
        "before": lines,
        "after": lines,
    }));
    let output = record(json!({
        "path": real_path(),
        "matches": {"type": "array", "items": hit},
        "files_searched": count("Text files looked at"),
        "files_skipped": count("Files left out: too large, not text, or closed by a rule"),
        "truncated": flag("There are more matches"),
    }));
    (input, output)
}

/// The fields that name a program.
fn program() -> serde_json::Map<String, Value> {
    let fields = json!({
        "argv": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1000, "description": "Program and arguments; no shell reads them"},
        "command": {"type": "string", "minLength": 1, "maxLength": 100_000, "description": "A line for sh -c, instead of argv; shell metacharacters always ask the person"},
        "cwd": path("Where it starts; the working directory unless given"),
        "env": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 100, "description": "Variables added to a small, clean environment"},
    });
    match fields {
        Value::Object(fields) => fields,
        _ => serde_json::Map::new(),
    }
}

pub(super) fn shell() -> (Value, Value) {
    let mut fields = program();
    fields.insert(
        "timeout_ms".to_owned(),
        number(1, 86_400_000, "End it after so many milliseconds; the call's own deadline holds as well"),
    );
    fields.insert(
        "max_output_bytes".to_owned(),
        number(
            1,
            2 * 1024 * 1024,
            "Keep at most so many bytes of each stream (the beginning and the end), 512 KiB unless given",
        ),
    );
    let output = record(json!({
        "exit_code": maybe("integer", "null if a signal ended it"),
        "signal": maybe("integer", "The signal that ended it"),
        "stdout": text("Standard output"),
        "stderr": text("Standard error"),
        "truncated": flag("Something is missing in the middle of a stream"),
        "duration_ms": count("How long it ran"),
    }));
    (object(Value::Object(fields), &[]), output)
}

fn process() -> Value {
    record(json!({
        "process_id": text("What the other process tools take"),
        "name": maybe("string", "As given at the start"),
        "command": text("What was started"),
        "pid": count("The operating system's number"),
        "running": flag("It has not ended"),
        "exit_code": maybe("integer", "How it ended"),
        "signal": maybe("integer", "The signal that ended it"),
        "duration_ms": count("How long it ran or runs"),
        "stdout_bytes": count("Written to standard output so far"),
        "stderr_bytes": count("Written to standard error so far"),
    }))
}

fn process_id() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 64, "description": "From process_start"})
}

pub(super) fn process_start() -> (Value, Value) {
    let mut fields = program();
    fields.insert("name".to_owned(), json!({"type": "string", "maxLength": 100, "description": "A name for people"}));
    (object(Value::Object(fields), &[]), process())
}

pub(super) fn process_status() -> (Value, Value) {
    (
        object(json!({"process_id": process_id()}), &[]),
        record(json!({"processes": {"type": "array", "items": process()}})),
    )
}

pub(super) fn process_output() -> (Value, Value) {
    let input = object(
        json!({
            "process_id": process_id(),
            "stream": {"enum": ["stdout", "stderr"], "description": "stdout unless given"},
            "after": count("Only what came after this place: next_after of the last read, 0 unless given"),
            "max_bytes": number(1, 512 * 1024, "At most so many bytes, 64 KiB unless given"),
            "wait_ms": number(0, 30_000, "Wait so long for something new"),
        }),
        &["process_id"],
    );
    let output = record(json!({
        "process_id": text("The process"),
        "stream": {"enum": ["stdout", "stderr"]},
        "next_after": count("Where the next read goes on"),
        "lost_bytes": count("Bytes before this text that are no longer kept"),
        "more": flag("There is more to read now"),
        "running": flag("It has not ended"),
        "exit_code": maybe("integer", "How it ended"),
        "signal": maybe("integer", "The signal that ended it"),
    }));
    (input, output)
}

pub(super) fn process_stop() -> (Value, Value) {
    let input = object(
        json!({
            "process_id": process_id(),
            "grace_ms": number(0, 60_000, "Between SIGTERM and SIGKILL, 5000 unless given; 0 is SIGKILL at once"),
        }),
        &["process_id"],
    );
    (input, process())
}

pub(super) fn git_status() -> (Value, Value) {
    let state = json!({"enum": ["unchanged", "modified", "type_changed", "added", "deleted", "renamed", "copied", "conflict", "untracked", "other"]});
    let entry = record(json!({
        "path": text("From the top of the repository"),
        "index": state,
        "worktree": state,
        "from": maybe("string", "Where a renamed or copied path was"),
    }));
    let output = record(json!({
        "branch": maybe("string", "null if HEAD is detached"),
        "head": maybe("string", "The commit; null before the first"),
        "upstream": maybe("string", "The branch that it follows"),
        "ahead": maybe("integer", "Commits that upstream lacks"),
        "behind": maybe("integer", "Commits that upstream has more"),
        "clean": flag("Nothing is changed"),
        "entries": {"type": "array", "items": entry},
        "truncated": flag("There are more"),
    }));
    (
        object(
            json!({"path": path("A folder in the working tree; only what is below it is listed. The working directory unless given")}),
            &[],
        ),
        output,
    )
}

pub(super) fn pdf() -> (Value, Value) {
    let input = object(
        json!({
            "path": path("The PDF"),
            "first_page": number(1, 1_000_000, "From 1"),
            "max_pages": number(1, 1_000_000, "At most so many pages"),
            "max_chars": number(1, 4_000_000, "At most so many characters, 1,000,000 unless given"),
        }),
        &["path"],
    );
    let output = record(json!({
        "path": real_path(),
        "pages": count("Pages of the document"),
        "pages_read": count("Pages whose text is given"),
        "unreadable_pages": {"type": "array", "items": {"type": "integer"}, "description": "Pages that could not be read, or only in part"},
        "truncated": flag("There is more than was given"),
        "hint": maybe("string", "What to think of an empty text"),
    }));
    (input, output)
}
