//! Query parameters and path segments, strictly: a misspelt filter must not look like "everything".

use axum::extract::{FromRequestParts, Path, Query};
use http::request::Parts;
use vance_shared::doc::nearest;
use vance_shared::show::quoted;

use super::answer::Answer;
use crate::api::ApiError;

/// Parameters as they came, each taken once.
pub(super) struct Params(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        let Query(pairs) = Query::<Vec<(String, String)>>::from_request_parts(parts, state)
            .await
            .map_err(|_| bad("the query cannot be read; expected ?name=value&…".to_owned()))?;
        Ok(Self(pairs))
    }
}

impl Params {
    /// All known parameters in the order of `known`. An unknown or repeated one is an error.
    pub(super) fn take<const N: usize>(self, known: [&str; N]) -> Answer<[Option<String>; N]> {
        let mut taken = [const { None }; N];
        for (name, value) in self.0 {
            let place = known.iter().position(|k| *k == name).and_then(|index| taken.get_mut(index));
            match place {
                Some(place @ None) => *place = Some(value),
                Some(Some(_)) => return Err(bad(format!("`{name}` stands twice in the query"))),
                None => return Err(unknown(&name, &known)),
            }
        }
        Ok(taken)
    }
}

fn unknown(name: &str, known: &[&str]) -> ApiError {
    let shown = quoted(name, 40);
    bad(match (nearest(name, known.iter().copied()), known) {
        (Some(near), _) => format!("unknown parameter {shown}; did you mean `{near}`?"),
        (None, []) => format!("unknown parameter {shown}; this route takes none"),
        (None, known) => format!("unknown parameter {shown}; this route takes {}", known.join(", ")),
    })
}

/// A query that says something wrong.
pub(super) fn bad(message: String) -> ApiError {
    ApiError::new(400, "bad_query", message)
}

/// The one variable segment of a path, decoded.
pub(super) struct Segment(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        let Path(segment) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|_| ApiError::new(400, "bad_path", "the path cannot be decoded as UTF-8"))?;
        Ok(Self(segment))
    }
}
