//! `{{ … }}` in step arguments (minijinja). A string that is one expression keeps the JSON type of its value; others become text.

use std::collections::BTreeSet;

use minijinja::{Environment, UndefinedBehavior};
use serde_json::Value;

mod references;

pub use references::{TaskReferences, task_references};

/// Work that one expression may do: a loop over every item of a large result fits, an endless one does not.
const FUEL: u64 = 500_000;

/// Text that one expression may make.
const MAX_RENDERED_BYTES: usize = 4 * 1024 * 1024;

/// So much of an expression is shown when it fails.
const MAX_SHOWN_CHARS: usize = 120;

/// Why an argument could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{path}`: {message}")]
pub struct ExpressionError {
    /// Where in `with`: `summary`, `items[2].name`.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

fn environment<'a>() -> Environment<'a> {
    let mut env = Environment::new();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_fuel(Some(FUEL));
    env
}

fn is_template(text: &str) -> bool {
    text.contains("{{") || text.contains("{%") || text.contains("{#")
}

/// The inside of a string that is exactly one `{{ … }}`.
fn single(text: &str) -> Option<&str> {
    text.trim().strip_prefix("{{")?.strip_suffix("}}").map(str::trim)
}

fn said(error: &minijinja::Error) -> String {
    let detail = error.detail().map_or_else(String::new, |d| format!(": {d}"));
    vance_shared::show::plain(&format!("{}{detail}", error.kind()))
}

/// Checks the syntax of the expressions in a string.
pub fn check(text: &str) -> Result<(), String> {
    if !is_template(text) {
        return Ok(());
    }
    environment().template_from_str(text).map(|_| ()).map_err(|error| said(&error))
}

/// Top-level names that a string refers to, without `tasks`: earlier steps' results, sorted.
pub fn step_references(text: &str) -> Vec<String> {
    let env = environment();
    let Ok(template) = env.template_from_str(text) else { return Vec::new() };
    template
        .undeclared_variables(false)
        .into_iter()
        .filter(|n| n != "tasks")
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

/// Makes a step's arguments: every string of `with` is evaluated against `context` (earlier steps by name, `tasks.ID`).
pub fn render_arguments(
    with: &serde_json::Map<String, Value>,
    context: &Value,
) -> Result<serde_json::Map<String, Value>, ExpressionError> {
    let env = environment();
    let mut out = serde_json::Map::with_capacity(with.len());
    for (key, value) in with {
        out.insert(key.clone(), render(&env, value, context, key)?);
    }
    Ok(out)
}

fn render(env: &Environment<'_>, value: &Value, context: &Value, path: &str) -> Result<Value, ExpressionError> {
    match value {
        Value::String(text) if is_template(text) => evaluate(env, text, context).map_err(|message| {
            let message = format!("{message}, in {}", vance_shared::show::quoted(text.trim(), MAX_SHOWN_CHARS));
            ExpressionError { path: path.to_owned(), message }
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(i, item)| render(env, item, context, &format!("{path}[{i}]")))
            .collect::<Result<_, _>>()
            .map(Value::Array),
        Value::Object(map) => map
            .iter()
            .map(|(k, v)| Ok((k.clone(), render(env, v, context, &format!("{path}.{k}"))?)))
            .collect::<Result<_, _>>()
            .map(Value::Object),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(value.clone()),
    }
}

fn evaluate(env: &Environment<'_>, text: &str, context: &Value) -> Result<Value, String> {
    if let Some(inside) = single(text)
        && let Ok(expression) = env.compile_expression(inside)
    {
        let value =
            expression.eval(minijinja::Value::from(minijinja::value::Serde(context))).map_err(|error| said(&error))?;
        if value.is_undefined() {
            return Err(format!("`{}` is not defined here", vance_shared::show::plain(inside)));
        }
        return serde_json::to_value(&value).map_err(|error| error.to_string());
    }
    let rendered =
        env.render_str(text, minijinja::Value::from(minijinja::value::Serde(context))).map_err(|error| said(&error))?;
    if rendered.len() > MAX_RENDERED_BYTES {
        return Err(format!("the text is larger than {MAX_RENDERED_BYTES} bytes"));
    }
    Ok(Value::String(rendered))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use serde_json::json;

    fn rendered(with: Value, context: &Value) -> Result<Value, ExpressionError> {
        let Value::Object(with) = with else { panic!("an object") };
        render_arguments(&with, context).map(Value::Object)
    }

    #[test]
    fn one_expression_keeps_its_type_and_text_is_joined() {
        let context =
            json!({"paper": {"text": "hello", "n": 3, "list": [1, 2]}, "tasks": {"a": {"paper": {"text": "T"}}}});
        let got = rendered(
            json!({"a": "{{ paper.n }}", "b": "n={{ paper.n }}", "c": ["{{ paper.list }}"], "d": "{{ tasks.a.paper.text }}", "e": "plain", "f": "{{ paper.text }}-{{ paper.n }}", "g": {"h": "{{ {'k': {'l': 1}} }}"}}),
            &context,
        );
        assert_eq!(
            got.unwrap(),
            json!({"a": 3, "b": "n=3", "c": [[1, 2]], "d": "T", "e": "plain", "f": "hello-3", "g": {"h": {"k": {"l": 1}}}})
        );
    }

    #[test]
    fn what_is_not_there_is_an_error_that_names_the_place() {
        for bad in ["{{ nothing }}", "{{ paper.nope }}", "x {{ paper.nope }}", "{{ tasks.b.x }}"] {
            let error = rendered(json!({"outer": [{"k": bad}]}), &json!({"paper": {}, "tasks": {}})).unwrap_err();
            assert_eq!(error.path, "outer[0].k", "{bad}: {error}");
            assert!(error.message.contains(bad), "{error}");
        }
    }

    #[test]
    fn an_endless_expression_runs_out_of_fuel() {
        let error = rendered(
            json!({"a": "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}"}),
            &json!({}),
        );
        assert!(error.is_err());
    }

    #[test]
    fn references_are_found() {
        assert_eq!(step_references("{{ tasks.a.x.text }} {{ paper.text }}"), ["paper"]);
        assert!(check("{{ a").is_err() && check("plain } text").is_ok() && check("{{ a | upper }}").is_ok());
    }
}
