//! One operation, cut out of the raw document: schemas become stubs, what is only loosely written is put right, and the rest
//! is read by `openapiv3`. A fault costs this operation alone.

use std::collections::BTreeMap;

use openapiv3::{PathStyle, QueryStyle, ReferenceOr};
use serde_json::{Map, Value, json};

use crate::document::{Document, Version};
use crate::operation::{Body, Parameter, Place, Requirement, Style};
use crate::raw::{RawOperation, truth};

mod body;
mod template;
pub(crate) use body::{BodySource, FormSource, body_source};
pub(crate) use template::template;

/// Parameters of one operation. The most that is known are 582.
const MAX_PARAMETERS: usize = 2000;

/// What is known of an operation after it was cut out.
pub(crate) struct Cut {
    /// Parameters that may become arguments, without their arguments' names.
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) body: Option<Body>,
    pub(crate) security: Option<Vec<Vec<Requirement>>>,
    pub(crate) accept: String,
}

/// Reads one operation. The error is its reason to be skipped.
pub(crate) fn cut(doc: &Document, raw: &RawOperation<'_>) -> Result<Cut, String> {
    let sources = raw.parameters(doc)?;
    if sources.len() > MAX_PARAMETERS {
        return Err(format!("{} parameters, expected at most {MAX_PARAMETERS}", sources.len()));
    }
    let mut stubs = Vec::with_capacity(sources.len());
    let mut oddities: Vec<(usize, Oddity)> = Vec::with_capacity(sources.len());
    for (at, source) in sources.iter().enumerate() {
        if let Some((stub, oddity)) = stub(doc, source)? {
            stubs.push(stub);
            oddities.push((at, oddity));
        }
    }
    let body = body_source(doc, raw)?;
    let mut operation = Map::new();
    operation.insert("parameters".to_owned(), Value::Array(stubs));
    operation.insert("responses".to_owned(), json!({}));
    if let Some(body) = &body {
        operation.insert("requestBody".to_owned(), body.stub());
    }
    if let Some(security) = raw.operation.get("security").or(doc.root().get("security")) {
        operation.insert("security".to_owned(), security.clone());
    }
    let read: openapiv3::Operation =
        serde_json::from_value(Value::Object(operation)).map_err(|e| vance_shared::show::plain(&e.to_string()))?;
    let mut parameters = Vec::with_capacity(oddities.len());
    for (parameter, (at, oddity)) in read.parameters.into_iter().zip(oddities) {
        if let ReferenceOr::Item(parameter) = parameter {
            parameters.push(typed(parameter, at, oddity));
        }
    }
    let media = read.request_body.and_then(|body| body.into_item()).and_then(|body| body.content.into_values().next());
    let security = read.security.map(|list| list.into_iter().map(|all| all.into_iter().collect()).collect());
    Ok(Cut { parameters, body: body.map(|source| source.read(media)), security, accept: accept(doc, raw) })
}

/// What `openapiv3` cannot say of a parameter.
#[derive(Default)]
struct Oddity {
    /// The separator of a 2.0 list.
    separator: Option<char>,
    whole_query: bool,
}

/// A parameter with a stub for its schema; none for what belongs to the body.
fn stub(doc: &Document, source: &Map<String, Value>) -> Result<Option<(Value, Oddity)>, String> {
    let name = match source.get("name") {
        Some(Value::String(name)) if !name.is_empty() => name,
        Some(_) | None => return Err("a parameter has no name".to_owned()),
    };
    let place = source.get("in").and_then(Value::as_str).unwrap_or_default();
    let old = doc.version() == Version::V2;
    let mut oddity = Oddity::default();
    let mut stub = Map::new();
    stub.insert("name".to_owned(), name.as_str().into());
    stub.insert("required".to_owned(), truth(source.get("required")).into());
    match place {
        "body" | "formData" if old => return Ok(None),
        "querystring" if doc.version() == Version::V32 => {
            oddity.whole_query = true;
            stub.insert("in".to_owned(), "query".into());
        }
        "path" | "query" | "header" => drop(stub.insert("in".to_owned(), place.into())),
        "cookie" if !old => drop(stub.insert("in".to_owned(), place.into())),
        other => {
            let shown = vance_shared::show::quoted(other, 40);
            return Err(format!("the parameter {} is in {shown}", vance_shared::show::quoted(name, 60)));
        }
    }
    if old {
        list_format(source, place, &mut stub, &mut oddity);
    } else {
        for key in ["style", "explode", "allowReserved"] {
            match source.get(key) {
                Some(Value::String(text)) if key == "style" => drop(stub.insert(key.to_owned(), text.as_str().into())),
                Some(value) if key != "style" => drop(stub.insert(key.to_owned(), truth(Some(value)).into())),
                Some(_) | None => {}
            }
        }
    }
    let content = match source.get("content") {
        Some(Value::Object(content)) if !source.contains_key("schema") => content.keys().next(),
        Some(_) | None => None,
    };
    match content {
        Some(media) => stub.insert("content".to_owned(), json!({media.as_str(): {}})),
        None => stub.insert("schema".to_owned(), json!({})),
    };
    Ok(Some((Value::Object(stub), oddity)))
}

/// `collectionFormat` of 2.0 in the words of 3.0; csv where nothing is said.
fn list_format(source: &Map<String, Value>, place: &str, stub: &mut Map<String, Value>, oddity: &mut Oddity) {
    oddity.separator = match source.get("collectionFormat").and_then(Value::as_str) {
        Some("multi") if place == "query" => {
            stub.insert("explode".to_owned(), true.into());
            return;
        }
        Some("ssv") => Some(' '),
        Some("tsv") => Some('\t'),
        Some("pipes") => Some('|'),
        Some(_) | None => None,
    };
    stub.insert("explode".to_owned(), false.into());
}

fn typed(parameter: openapiv3::Parameter, at: usize, oddity: Oddity) -> Parameter {
    let (place, style, data, reserved) = match parameter {
        openapiv3::Parameter::Query { parameter_data, allow_reserved, style, .. } => {
            let place = if oddity.whole_query { Place::QueryString } else { Place::Query };
            (place, query_style(&style), parameter_data, allow_reserved)
        }
        openapiv3::Parameter::Header { parameter_data, .. } => (Place::Header, Style::Simple, parameter_data, false),
        openapiv3::Parameter::Path { parameter_data, style } => {
            let style = match style {
                PathStyle::Matrix => Style::Matrix,
                PathStyle::Label => Style::Label,
                PathStyle::Simple => Style::Simple,
            };
            (Place::Path, style, parameter_data, false)
        }
        openapiv3::Parameter::Cookie { parameter_data, .. } => (Place::Cookie, Style::Form, parameter_data, false),
    };
    let json_content = match &data.format {
        openapiv3::ParameterSchemaOrContent::Content(content) => content.keys().next().is_some_and(|m| is_json(m)),
        openapiv3::ParameterSchemaOrContent::Schema(_) => false,
    };
    let style = match oddity.separator {
        Some(separator) => Style::Joined(separator),
        None if json_content => Style::Json,
        None => style,
    };
    Parameter {
        argument: String::new(),
        place,
        style,
        explode: data.explode.unwrap_or(style == Style::Form),
        reserved,
        required: data.required || place == Place::Path,
        wire: data.name,
        source: Some(at),
    }
}

pub(crate) fn query_style(style: &QueryStyle) -> Style {
    match style {
        QueryStyle::Form => Style::Form,
        QueryStyle::SpaceDelimited => Style::Joined(' '),
        QueryStyle::PipeDelimited => Style::Joined('|'),
        QueryStyle::DeepObject => Style::DeepObject,
    }
}

/// A media type without its parameters, in lower case.
pub(crate) fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// `application/json`, `+json` and the like.
pub(crate) fn is_json(media_type: &str) -> bool {
    let essence = essence(media_type);
    essence == "application/json" || essence == "text/json" || essence.ends_with("+json")
}

/// The answers that the operation declares, JSON first.
fn accept(doc: &Document, raw: &RawOperation<'_>) -> String {
    const ANY: &str = "*/*;q=0.5";
    let mut types: Vec<&str> = Vec::new();
    if doc.version() == Version::V2 {
        let list = raw.operation.get("produces").or(doc.root().get("produces"));
        types.extend(list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str));
    } else if let Some(Value::Object(responses)) = raw.operation.get("responses") {
        for (_, response) in responses.iter().filter(|(status, _)| status.starts_with('2')) {
            let content = doc.follow(response).ok().and_then(|response| response.get("content"));
            types.extend(content.and_then(Value::as_object).into_iter().flat_map(Map::keys).map(String::as_str));
        }
    }
    let sendable = |text: &&str| text.contains('/') && text.bytes().all(|b| (b' '..=b'~').contains(&b));
    types.retain(|text| sendable(text));
    let wanted = types.iter().find(|text| essence(text) == "application/json");
    match wanted.or_else(|| types.iter().find(|text| is_json(text))).or(types.first()) {
        Some(&"*/*") | None => format!("application/json, {ANY}"),
        Some(first) => format!("{first}, {ANY}"),
    }
}

/// Placeholders that nothing declares become required texts; parameters of the path that are not in it are left out.
pub(crate) fn settle_path(parameters: &mut Vec<Parameter>, placeholders: &[String]) {
    parameters.retain(|parameter| parameter.place != Place::Path || placeholders.contains(&parameter.wire));
    let declared: BTreeMap<String, ()> =
        parameters.iter().filter(|p| p.place == Place::Path).map(|p| (p.wire.clone(), ())).collect();
    for name in placeholders.iter().filter(|name| !declared.contains_key(*name)) {
        parameters.push(Parameter {
            argument: String::new(),
            wire: name.clone(),
            place: Place::Path,
            style: Style::Simple,
            explode: false,
            reserved: false,
            required: true,
            source: None,
        });
    }
}

/// Headers whose names no header can have are left out, or cost the operation where they are required.
pub(crate) fn settle_headers(parameters: &mut Vec<Parameter>) -> Result<(), String> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let broken = |parameter: &Parameter| parameter.place == Place::Header && !parameter.wire.bytes().all(token);
    if let Some(parameter) = parameters.iter().find(|parameter| broken(parameter) && parameter.required) {
        return Err(format!(
            "the header {} has a name that cannot be sent",
            vance_shared::show::quoted(&parameter.wire, 60)
        ));
    }
    parameters.retain(|parameter| !broken(parameter));
    Ok(())
}

/// Turns the placeholders' indices of a template into those of the parameters.
pub(crate) fn number(
    template: &mut [crate::operation::Piece],
    placeholders: &[String],
    parameters: &[Parameter],
) -> Result<(), String> {
    use crate::operation::Piece;
    for piece in template {
        let (Piece::Value(at) | Piece::QueryValue(at)) = piece else { continue };
        let name = &placeholders[*at];
        let found = parameters.iter().position(|p| p.place == Place::Path && p.wire == *name);
        *at = found.ok_or_else(|| format!("the path's {} is a credential", vance_shared::show::quoted(name, 60)))?;
    }
    Ok(())
}
