//! Operations as they lie in the document: found, their parameters put together, nothing interpreted yet.

use serde_json::{Map, Value};

use crate::document::{Document, RefError, Version};

/// Methods that a path item has by name.
const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

/// One operation before it is read.
#[derive(Clone, Copy)]
pub(crate) struct RawOperation<'d> {
    pub(crate) path: &'d str,
    /// As the document writes it.
    pub(crate) method: &'d str,
    pub(crate) item: &'d Map<String, Value>,
    pub(crate) operation: &'d Map<String, Value>,
}

/// A path or operation that could not be read.
pub(crate) struct Bad {
    /// How many operations stand before it.
    pub(crate) after: usize,
    pub(crate) what: String,
    pub(crate) why: String,
}

/// All operations in the document's order, and the paths and operations that cannot be read at all.
pub(crate) fn operations(doc: &Document) -> (Vec<RawOperation<'_>>, Vec<Bad>) {
    let (mut found, mut bad) = (Vec::new(), Vec::new());
    let Some(Value::Object(paths)) = doc.root().get("paths") else { return (found, bad) };
    for (path, item) in paths.iter().filter(|(path, _)| !path.starts_with("x-")) {
        match doc.follow(item) {
            Ok(Value::Object(item)) => in_item(doc, path, item, &mut found, &mut bad),
            Ok(Value::Null) => {}
            Ok(_) => bad.push(Bad {
                after: found.len(),
                what: path.clone(),
                why: "the path's description is no object".to_owned(),
            }),
            Err(error) => bad.push(Bad { after: found.len(), what: path.clone(), why: error.to_string() }),
        }
    }
    (found, bad)
}

fn in_item<'d>(
    doc: &Document,
    path: &'d str,
    item: &'d Map<String, Value>,
    found: &mut Vec<RawOperation<'d>>,
    bad: &mut Vec<Bad>,
) {
    let newer = doc.version() == Version::V32;
    let mut add = |method: &'d str, value: &'d Value| match value {
        Value::Object(operation) => found.push(RawOperation { path, method, item, operation }),
        Value::Null => {}
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            let what = format!("{} {path}", method.to_ascii_uppercase());
            bad.push(Bad { after: found.len(), what, why: "the operation is no object".to_owned() });
        }
    };
    for (key, value) in item {
        if METHODS.contains(&key.as_str()) || (newer && key == "query") {
            add(key, value);
        }
        if newer
            && key == "additionalOperations"
            && let Value::Object(more) = value
        {
            for (method, value) in more {
                add(method, value);
            }
        }
    }
}

impl<'d> RawOperation<'d> {
    /// `GET /x`.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.method.to_ascii_uppercase(), self.path)
    }

    /// The operation id.
    pub(crate) fn id(&self) -> Option<&'d str> {
        self.operation.get("operationId").and_then(Value::as_str).filter(|id| !id.trim().is_empty())
    }

    /// Its tags; one word counts as a list.
    pub(crate) fn tags(&self) -> Vec<&'d str> {
        match self.operation.get("tags") {
            Some(Value::Array(tags)) => tags.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(tag)) => vec![tag],
            Some(_) | None => Vec::new(),
        }
    }

    /// The path's parameters, each replaced where the operation has one of the same name and place, then the operation's own.
    /// References are followed; one that leads nowhere is the operation's fault.
    pub(crate) fn parameters(&self, doc: &'d Document) -> Result<Vec<&'d Map<String, Value>>, String> {
        let mut all: Vec<&'d Map<String, Value>> = Vec::new();
        for list in [self.item.get("parameters"), self.operation.get("parameters")] {
            let items = match list {
                Some(Value::Array(items)) => items,
                None | Some(Value::Null) => continue,
                Some(_) => return Err("`parameters` is no list".to_owned()),
            };
            for item in items {
                let parameter = match doc.follow(item).map_err(reason)? {
                    Value::Object(parameter) => parameter,
                    _ => return Err("a parameter is no object".to_owned()),
                };
                let key = |parameter: &'d Map<String, Value>| (parameter.get("in"), parameter.get("name"));
                match all.iter().position(|known| key(known) == key(parameter)) {
                    Some(at) => all[at] = parameter,
                    None => all.push(parameter),
                }
            }
        }
        Ok(all)
    }

    /// The body's description (3.x).
    pub(crate) fn request_body(&self, doc: &'d Document) -> Result<Option<&'d Map<String, Value>>, String> {
        match self.operation.get("requestBody") {
            None | Some(Value::Null) => Ok(None),
            Some(body) => match doc.follow(body).map_err(reason)? {
                Value::Object(body) => Ok(Some(body)),
                _ => Err("the request body's description is no object".to_owned()),
            },
        }
    }
}

fn reason(error: RefError) -> String {
    error.to_string()
}

/// True, or the text `true`.
pub(crate) fn truth(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Bool(truth)) => *truth,
        Some(Value::String(text)) => text == "true",
        Some(_) | None => false,
    }
}
