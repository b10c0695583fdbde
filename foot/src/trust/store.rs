//! A book of consents as a file of the home.

use std::path::Path;

use vance_own_file::{Distrust, Found, Own};
use vance_shared::doc::Problem;
use vance_shared::gate::Book;

/// Largest file: what the book's reader takes.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// `trusted-packs.yaml` of a home, or its like.
#[derive(Debug, Clone)]
pub struct Store {
    file: Own,
    empty: fn() -> Book,
    parse: fn(&str, &str) -> Result<Book, Vec<Problem>>,
}

/// What the file says.
#[derive(Debug, Default)]
pub struct Reading {
    /// Empty if the file may not be believed.
    pub book: Book,
    /// Why nothing in it counts, if so.
    pub distrust: Option<String>,
    /// What was mended on the way.
    pub notices: Vec<String>,
}

impl Store {
    /// `project`: the canonical working directory, in which no store counts.
    pub fn packs(home: &Path, project: Option<&Path>) -> Self {
        let file = Own::new(home.join(super::STORE), MAX_BYTES, super::WHEN_FULL).not_in(project);
        Self { file, empty: Book::empty, parse: Book::parse }
    }

    /// The same for Brains that projects name.
    pub fn brains(home: &Path, project: Option<&Path>) -> Self {
        let file = Own::new(home.join(super::BRAINS), MAX_BYTES, super::WHEN_FULL).not_in(project);
        Self { file, empty: Book::brains, parse: Book::parse_brains }
    }

    /// Reads the file. What may not be believed trusts nothing, and is no reason to stop.
    pub fn read(&self) -> Reading {
        let distrust = |why: String| Some(format!("nothing is trusted: {why}"));
        match self.file.read() {
            Ok(Found { text, notices }) => match self.parse(text.as_deref()) {
                Ok(book) => Reading { book, distrust: None, notices },
                Err(corrupt) => Reading { book: (self.empty)(), distrust: distrust(corrupt.to_string()), notices },
            },
            Err(why) => Reading { book: (self.empty)(), distrust: distrust(why.to_string()), notices: Vec::new() },
        }
    }

    /// Changes the file under its lock. A file that is not understood, or not believed, is left alone.
    pub fn edit<T>(&self, change: impl FnOnce(&mut Book) -> T) -> Result<T, Distrust> {
        self.file.edit(|text| {
            let before = self.parse(text)?;
            let mut book = before.clone();
            let result = change(&mut book);
            if book == before {
                return Ok((None, result));
            }
            self.parse(Some(book.to_yaml()))?;
            Ok((Some(book.to_yaml().to_owned()), result))
        })
    }

    /// The file as people see it.
    pub fn shown(&self) -> String {
        self.file.shown()
    }

    fn parse(&self, text: Option<&str>) -> Result<Book, Distrust> {
        let Some(text) = text else { return Ok((self.empty)()) };
        (self.parse)(&self.shown(), text).map_err(|problems| {
            let said: Vec<String> = problems.iter().take(3).map(ToString::to_string).collect();
            Distrust::Corrupt(said.join("; "))
        })
    }
}

#[cfg(test)]
mod tests;
