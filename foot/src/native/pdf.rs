//! `pdf_extract_text`. A PDF can make its reader panic, run for ever, overflow its stack or fill the memory, so it is read in a
//! process of its own, under the guard: `PROGRAM __pdf_text FIRST PAGES CHARS`, the PDF on its input, one JSON object as its answer.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Semaphore;
use vance_mcp_host::guard::{Exit, GuardedChild};
use vance_shared::call::Outcome;
use vance_shared::json::Raw;
use vance_shared::show::plain;
use vance_shared::tool::ToolResult;

use super::gate::{Call, Gate, Halt, blocking};
use super::launch::Launcher;
use super::roots::Resolved;
use super::shell::drive;
use super::text::{MAX_JSON_BYTES, fit};
use super::{Ended, failed};

/// First argument of a program that is to read a PDF.
const WORD: &str = "__pdf_text";
/// Largest PDF: it is held in memory here and there.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;
/// Text without `max_chars`.
const DEFAULT_CHARS: usize = 1_000_000;
/// The reader's memory: a compressed page of a few kilobytes can hold gigabytes.
const MAX_MEMORY_BYTES: u64 = 1536 * 1024 * 1024;
/// Readers side by side: each may fill its memory.
const MAX_READERS: usize = 2;
/// The reader's answer.
const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;

#[derive(Debug, Deserialize)]
struct Arguments {
    path: String,
    #[serde(default)]
    first_page: Option<u32>,
    #[serde(default)]
    max_pages: Option<u32>,
    #[serde(default)]
    max_chars: Option<usize>,
}

/// What the reader says.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Answer {
    error: Option<String>,
    pages: u32,
    read: u32,
    unreadable: Vec<u32>,
    truncated: bool,
    text: String,
}

/// Starts readers.
pub(super) struct Extractor {
    launcher: Launcher,
    slots: Semaphore,
}

impl Extractor {
    pub(super) fn new(launcher: Launcher) -> Self {
        Self { launcher, slots: Semaphore::new(MAX_READERS) }
    }

    async fn extract(&self, pdf: Vec<u8>, args: &Arguments, halt: &Halt) -> Result<Answer, Box<Outcome>> {
        let Ok(_slot) = self.slots.acquire().await else {
            return Err(failed("shutting_down", "this Foot is ending"));
        };
        let first = args.first_page.unwrap_or(1).max(1);
        let numbers = [
            first.to_string(),
            args.max_pages.unwrap_or(u32::MAX).to_string(),
            args.max_chars.unwrap_or(DEFAULT_CHARS).to_string(),
        ];
        let mut argv = vec![self.launcher.own_program().to_string_lossy().into_owned(), WORD.to_owned()];
        argv.extend(numbers);
        let mut child = self.launcher.spawn(argv, PathBuf::from("/"), BTreeMap::new(), true).await?;
        feed(&mut child, pdf);
        let ran = drive(&mut child, MAX_ANSWER_BYTES, halt).await;
        if let Some(outcome) = ran.halted {
            return Err(Box::new(outcome));
        }
        let unreadable = |why: String| failed("pdf_unreadable", format!("the PDF cannot be read: {why}"));
        match ran.exit {
            Ok(Exit::Code(0)) => {
                let (answer, _) = ran.stdout.into_head();
                serde_json::from_slice(&answer).map_err(|e| unreadable(plain(&e.to_string())))
            }
            // Out of memory or stack: both abort.
            Ok(exit) => Err(unreadable(format!(
                "its content breaks the reader ({exit}); the file is damaged or made to do that"
            ))),
            Err(e) => Err(unreadable(plain(&e.to_string()))),
        }
    }
}

/// Writes the PDF beside the reading of the answer. The task ends with the child: its end of the pipe closes.
fn feed(child: &mut GuardedChild, pdf: Vec<u8>) {
    let Some(mut stdin) = child.stdin.take() else { return };
    tokio::spawn(async move {
        if let Err(error) = stdin.write_all(&pdf).await {
            tracing::debug!(%error, "the PDF reader ended before it had read all");
        }
    });
}

pub(super) async fn run(gate: &Arc<Gate>, extractor: &Extractor, call: Call) -> Ended {
    let args: Arguments = call.parse()?;
    let (finder, path) = (Arc::clone(gate), args.path.clone());
    let at = blocking(move || finder.resolve(&path, false)).await?;
    gate.permit_read(&call, &at).await?;
    let file = at.clone();
    let pdf = blocking(move || bytes_of(&file)).await?;
    call.report(None, format!("reading {} bytes of PDF", pdf.len()));
    let answer = extractor.extract(pdf, &args, &call.halt).await?;
    if let Some(why) = answer.error {
        return Err(failed("pdf_unreadable", format!("{}: {}", at.shown(), plain(&why))));
    }
    let text = fit(&answer.text, MAX_JSON_BYTES);
    let structured = json!({
        "path": at.real.to_string_lossy(), "pages": answer.pages, "pages_read": answer.read, "unreadable_pages": answer.unreadable,
        "truncated": answer.truncated || text.len() < answer.text.len(),
        "hint": text.trim().is_empty().then_some("no text was found: the pages may be scanned images"),
    });
    Ok(ToolResult { structured: Some(Raw::from(structured)), ..ToolResult::text(text) })
}

fn bytes_of(at: &Resolved) -> Result<Vec<u8>, Box<Outcome>> {
    let (file, meta) = at.file()?;
    if meta.len() > MAX_FILE_BYTES {
        return Err(failed(
            "file_too_large",
            format!("{} has {} bytes, at most {MAX_FILE_BYTES} are read", at.shown(), meta.len()),
        ));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(|e| at.failure("read", &e))?;
    Ok(bytes)
}

/// Becomes the reader, and never returns, if the program was started as one.
pub(super) fn enter_if_asked() {
    let args: Vec<String> = std::env::args().collect();
    let [_, word, first, pages, chars] = args.as_slice() else { return };
    if word != WORD {
        return;
    }
    limit_memory();
    // A panic is an answer here, not a message for a person.
    std::panic::set_hook(Box::new(|_| {}));
    let answer = match (first.parse(), pages.parse(), chars.parse()) {
        (Ok(first), Ok(pages), Ok(chars)) => read(first, pages, chars),
        _ => Answer { error: Some("the reader was started wrongly".to_owned()), ..Answer::default() },
    };
    let written =
        serde_json::to_vec(&answer).map_err(std::io::Error::from).and_then(|json| std::io::stdout().write_all(&json));
    std::process::exit(i32::from(written.is_err()));
}

fn limit_memory() {
    use nix::sys::resource::{Resource, setrlimit};
    // Where the system knows no such limit, the deadline alone ends a reader that grows.
    if let Err(error) = setrlimit(Resource::RLIMIT_AS, MAX_MEMORY_BYTES, MAX_MEMORY_BYTES) {
        tracing::debug!(%error, "the PDF reader's memory is not limited");
    }
}

fn read(first: u32, max_pages: u32, max_chars: usize) -> Answer {
    let mut pdf = Vec::new();
    if let Err(error) = std::io::stdin().lock().take(MAX_FILE_BYTES).read_to_end(&mut pdf) {
        return Answer { error: Some(error.to_string()), ..Answer::default() };
    }
    match catch_unwind(AssertUnwindSafe(|| extract(&pdf, first, max_pages, max_chars))) {
        Ok(Ok(answer)) => answer,
        Ok(Err(why)) => Answer { error: Some(why), ..Answer::default() },
        Err(_) => Answer { error: Some("the file is damaged".to_owned()), ..Answer::default() },
    }
}

fn extract(pdf: &[u8], first: u32, max_pages: u32, max_chars: usize) -> Result<Answer, String> {
    let not_a_pdf = if pdf.starts_with(b"%PDF-") { "" } else { " (it does not begin as a PDF does)" };
    let mut doc = pdf_extract::Document::load_mem(pdf).map_err(|e| format!("{e}{not_a_pdf}"))?;
    if doc.is_encrypted() && doc.decrypt("").is_err() {
        return Err("it is encrypted with a password".to_owned());
    }
    let numbers: Vec<u32> = doc.get_pages().into_keys().collect();
    let mut answer = Answer { pages: u32::try_from(numbers.len()).unwrap_or(u32::MAX), ..Answer::default() };
    if numbers.is_empty() {
        return Err(format!("no page was found{not_a_pdf}"));
    }
    let wanted = numbers.iter().filter(|n| **n >= first);
    for number in wanted.clone().take(max_pages as usize) {
        let mut page = String::new();
        let mut output = pdf_extract::PlainTextOutput::new(&mut page);
        let read = catch_unwind(AssertUnwindSafe(|| pdf_extract::output_doc_page(&doc, &mut output, *number)));
        if !matches!(read, Ok(Ok(()))) {
            answer.unreadable.push(*number);
        }
        answer.read += 1;
        let room = max_chars.saturating_sub(answer.text.chars().count());
        let page = page.trim();
        answer.text.extend(page.chars().take(room));
        answer.text.push_str("\n\n");
        if page.chars().count() > room {
            answer.truncated = true;
            break;
        }
    }
    answer.truncated |= (answer.read as usize) < wanted.count();
    answer.text.truncate(answer.text.trim_end().len());
    Ok(answer)
}
