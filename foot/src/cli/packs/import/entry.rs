//! One server of another program as a pack: what can be taken, what cannot and why, what a person should know. Pure.

use serde_json::{Map, Value, json};
use vance_foot_core::command::tokens;
use vance_shared::launch::Origin;
use vance_shared::names::{MAX_NAME_BYTES, PackName, SUBTOOL_SEPARATOR};
use vance_shared::pack::parse_pack;

use super::secrets;
use super::source::Server;
use super::variables::{Place, Scene, is_variable, translate};

/// Fields that say something which has no place in a pack and needs none: the other program's own view and habits.
const OWN_MATTERS: [&str; 16] = [
    "gallery",
    "version",
    "dev",
    "icon",
    "icons",
    "name",
    "displayName",
    "title",
    "trust",
    "autoApprove",
    "alwaysAllow",
    "required",
    "default_tools_approval_mode",
    "tools_approval_mode",
    "id",
    "sandboxEnabled",
];

/// A server that can be taken over.
#[derive(Debug)]
pub(super) struct Taken {
    /// The pack's name.
    pub(super) name: PackName,
    /// The pack.
    pub(super) pack: Value,
    /// What a person should know.
    pub(super) remarks: Vec<String>,
}

/// Translates a server under the name `name`; the error is the reason why not.
pub(super) fn take(server: &Server, name: &PackName, scene: &Scene<'_>) -> Result<Taken, String> {
    let Value::Object(fields) = &server.entry else { return Err("is no mapping".to_owned()) };
    let mut reader = Reader { fields: fields.clone(), remarks: Vec::new(), scene, in_project: false };
    if server.name != name.as_str() {
        let was = vance_shared::show::quoted(&server.name, 80);
        reader.remarks.push(format!("its name there is {was}"));
    }
    let mut parameters = reader.transport(name)?;
    reader.times(&mut parameters);
    let mut pack = Map::new();
    pack.insert("name".to_owned(), json!(name));
    pack.insert("type".to_owned(), json!("mcp_server"));
    if let Some(description) = reader.text("description")? {
        pack.insert("description".to_owned(), json!(description));
    }
    if reader.is_off() {
        pack.insert("enabled".to_owned(), json!(false));
        reader.remarks.push("it is turned off there, so it is here".to_owned());
    }
    let disabled = reader.list(&["disabled_tools", "disabledTools", "excludeTools"])?;
    if !disabled.is_empty() {
        pack.insert("disabledSubTools".to_owned(), json!(disabled));
    }
    let only = reader.list(&["enabled_tools", "enabledTools", "includeTools"])?;
    if !only.is_empty() {
        reader.remarks.push(format!(
            "(!) there, only these of its tools are allowed: {}; here all are, until you name the others in `disabledSubTools`",
            only.join(", ")
        ));
    }
    pack.insert("parameters".to_owned(), Value::Object(parameters));
    let left: Vec<&str> = reader.fields.keys().map(String::as_str).filter(|key| !OWN_MATTERS.contains(key)).collect();
    if !left.is_empty() {
        reader.remarks.push(format!("not taken over: {}", left.join(", ")));
    }
    let (pack, mut remarks) = (Value::Object(pack), reader.remarks);
    let parsed = parse_pack(name.as_str(), &format!("{pack:#}"), Origin::Global);
    if let (None, Some(_)) = (&parsed.pack, parsed.problems.first()) {
        let said: Vec<&str> = parsed.problems.iter().map(|p| p.message.as_str()).collect();
        return Err(said.join("; "));
    }
    remarks.extend(parsed.warnings.into_iter().map(|warning| warning.message));
    remarks.extend(secrets::remarks(name, &pack));
    Ok(Taken { name: name.clone(), pack, remarks })
}

/// A name as packs have them: `My Server_1` → `My-Server_1`. Nothing if no letter or digit is left.
pub(super) fn mapped(name: &str) -> Option<PackName> {
    let mut out = String::new();
    for c in name.chars() {
        let c = if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        let twice = !c.is_ascii_alphanumeric() && out.ends_with(c);
        if !twice && out.len() < MAX_NAME_BYTES {
            out.push(c);
        }
    }
    debug_assert!(!out.contains(SUBTOOL_SEPARATOR), "no character but letters and digits comes twice");
    PackName::parse(out.trim_matches(['-', '_'])).ok()
}

struct Reader<'a> {
    /// What nobody has read so far.
    fields: Map<String, Value>,
    remarks: Vec<String>,
    scene: &'a Scene<'a>,
    /// A text named the project's folder.
    in_project: bool,
}

impl Reader<'_> {
    fn transport(&mut self, name: &PackName) -> Result<Map<String, Value>, String> {
        let kind = [self.text("type")?, self.text("transport")?, self.text("transportType")?];
        let kind = kind.into_iter().flatten().next().map(|kind| kind.to_ascii_lowercase());
        let mut url = None;
        for key in ["url", "httpUrl", "serverUrl", "uri"] {
            url = url.or(self.text(key)?);
        }
        let command = self.fields.remove("command");
        match (kind.as_deref(), &command, &url) {
            (Some("sse"), ..) => Err(SSE.to_owned()),
            (Some("stdio" | "local") | None, Some(_), None) => self.stdio(command),
            (
                Some("http" | "streamable-http" | "streamablehttp" | "streamable_http" | "remote") | None,
                None,
                Some(url),
            ) => self.http(url, name),
            (_, None, None) => Err("has neither `command` nor `url`".to_owned()),
            (_, Some(_), Some(_)) => Err("has both `command` and `url`, and which one counts is not said".to_owned()),
            (Some(kind), ..) => {
                Err(format!("has the type {}, expected stdio or http", vance_shared::show::quoted(kind, 40)))
            }
        }
    }

    fn stdio(&mut self, command: Option<Value>) -> Result<Map<String, Value>, String> {
        let mut argv = match command {
            Some(Value::Array(words)) => words.iter().map(word).collect::<Option<Vec<_>>>(),
            Some(Value::String(text)) => Some(vec![text]),
            Some(_) | None => None,
        }
        .ok_or("its `command` is no text")?;
        let arguments = match self.fields.remove("args") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(words)) => {
                words.iter().map(word).collect::<Option<Vec<_>>>().ok_or("its `args` hold something else than text")?
            }
            Some(_) => return Err("its `args` are no list".to_owned()),
        };
        if let ([line], true) = (argv.as_slice(), arguments.is_empty())
            && line.contains(' ')
            && !line.split(' ').next().unwrap_or_default().contains('/')
            && let Some(words) = tokens(line)
        {
            argv = words;
        }
        argv.extend(arguments);
        if argv.len() > 2
            && argv[0].to_ascii_lowercase().trim_end_matches(".exe") == "cmd"
            && argv[1].eq_ignore_ascii_case("/c")
        {
            argv.drain(..2);
            self.remarks.push("`cmd /c` is left out: it is for Windows".to_owned());
        }
        let mut words = Vec::with_capacity(argv.len());
        for (at, text) in argv.iter().enumerate() {
            let what = if at == 0 { "the command".to_owned() } else { format!("argument {at}") };
            words.push(self.translated(text, &what, Place::Literal)?);
        }
        let mut env = Map::new();
        for (key, value) in self.map(&["env"])? {
            if key == "PATH" {
                self.remarks.push(
                    "`PATH` is left out: a pack may not set it; name the program by its full path if it is not found"
                        .to_owned(),
                );
                continue;
            }
            let value = self.translated(&value, &format!("`{key}` in env"), Place::Value)?;
            env.insert(key, json!(value));
        }
        for name in self.names("env_vars")? {
            env.entry(name.clone()).or_insert_with(|| json!(format!("${{env:{name}}}")));
        }
        if let Some(file) = self.text("envFile")? {
            let file = vance_shared::show::quoted(&file, 200);
            self.remarks.push(format!(
                "(!) the variables of its file {file} are not read; write those that it needs under `env`"
            ));
        }
        let mut cwd = self.text("cwd")?;
        if let Some(text) = cwd {
            let text = self.translated(&text, "`cwd`", Place::Literal)?;
            cwd = Some(if text == "./" { ".".to_owned() } else { text });
        }
        if self.in_project {
            match cwd.as_deref() {
                None | Some(".") => cwd = Some(".".to_owned()),
                Some(_) => return Err("names the project's folder, but starts in another one".to_owned()),
            }
            self.remarks.push("the project's folder is `.`, so it starts there (\"cwd\": \".\")".to_owned());
        }
        let mut parameters = Map::new();
        parameters.insert("transport".to_owned(), json!("stdio"));
        parameters.insert("command".to_owned(), json!(words));
        if let Some(cwd) = cwd {
            parameters.insert("cwd".to_owned(), json!(cwd));
        }
        if !env.is_empty() {
            parameters.insert("env".to_owned(), Value::Object(env));
        }
        Ok(parameters)
    }

    fn http(&mut self, url: &str, name: &PackName) -> Result<Map<String, Value>, String> {
        let url = self.translated(url, "`url`", Place::Literal)?;
        let mut headers = Map::new();
        for (key, value) in self.map(&["headers", "http_headers"])? {
            let value = self.translated(&value, &format!("header {key}"), Place::Value)?;
            headers.insert(key, json!(value));
        }
        for (key, variable) in self.map(&["env_http_headers"])? {
            if !is_variable(&variable) {
                return Err(format!("header {key} comes from a variable whose name is none"));
            }
            headers.insert(key, json!(format!("${{env:{variable}}}")));
        }
        let bearer = self.text("bearer_token_env_var")?;
        if self.in_project {
            return Err("names the project's folder in an address or a header".to_owned());
        }
        for key in ["oauth", "auth", "authorization"] {
            if self.fields.remove(key).is_some() {
                self.remarks
                    .push(format!("how to sign in (`{key}`) is not taken over; if it asks: vancetope login {name}"));
            }
        }
        if url.trim_end_matches('/').ends_with("/sse") {
            self.remarks.push(format!("the address looks like the old transport: {SSE}"));
        }
        let mut parameters = Map::new();
        parameters.insert("transport".to_owned(), json!("http"));
        parameters.insert("url".to_owned(), json!(url));
        if !headers.is_empty() {
            parameters.insert("headers".to_owned(), Value::Object(headers));
        }
        if let Some(variable) = bearer {
            parameters.insert("auth".to_owned(), json!({"type": "bearer", "token": format!("${{env:{variable}}}")}));
        }
        Ok(parameters)
    }

    /// Limits of time. A bare `timeout` is in milliseconds in some programs and in seconds in others; nobody means 1,000 seconds.
    fn times(&mut self, parameters: &mut Map<String, Value>) {
        for (key, field, milliseconds) in [
            ("startup_timeout_sec", "initTimeoutSeconds", Some(false)),
            ("startup_timeout_ms", "initTimeoutSeconds", Some(true)),
            ("tool_timeout_sec", "timeoutSeconds", Some(false)),
            ("timeout", "timeoutSeconds", None),
        ] {
            let Some(number) = self.fields.remove(key).and_then(|value| value.as_f64()) else { continue };
            let seconds = if milliseconds.unwrap_or(number >= 1000.0) { number / 1000.0 } else { number };
            // Out of range (also what is no number) is the reader's to say.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            parameters.insert(field.to_owned(), json!(seconds.ceil().max(1.0) as u64));
        }
    }

    fn is_off(&mut self) -> bool {
        let (disabled, enabled) = (self.fields.remove("disabled"), self.fields.remove("enabled"));
        disabled == Some(Value::Bool(true)) || enabled == Some(Value::Bool(false))
    }

    fn translated(&mut self, text: &str, what: &str, place: Place) -> Result<String, String> {
        let said = translate(text, what, place, self.scene)?;
        self.in_project |= said.in_project;
        self.remarks.extend(said.remarks);
        Ok(said.text)
    }

    fn text(&mut self, key: &str) -> Result<Option<String>, String> {
        match self.fields.remove(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(format!("its `{key}` is no text")),
        }
    }

    fn map(&mut self, keys: &[&str]) -> Result<Vec<(String, String)>, String> {
        let mut pairs = Vec::new();
        for key in keys {
            match self.fields.remove(*key) {
                None | Some(Value::Null) => {}
                Some(Value::Object(fields)) => {
                    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                        let text = word(value).ok_or(format!("`{name}` in its `{key}` is no text"))?;
                        pairs.push((name.clone(), text));
                    }
                }
                Some(_) => return Err(format!("its `{key}` is no mapping")),
            }
        }
        Ok(pairs)
    }

    fn list(&mut self, keys: &[&str]) -> Result<Vec<String>, String> {
        let mut all = Vec::new();
        for key in keys {
            match self.fields.remove(*key) {
                None | Some(Value::Null) => {}
                Some(Value::Array(items)) => {
                    all.extend(
                        items
                            .iter()
                            .map(word)
                            .collect::<Option<Vec<_>>>()
                            .ok_or(format!("its `{key}` holds something else than text"))?,
                    );
                }
                Some(_) => return Err(format!("its `{key}` is no list")),
            }
        }
        Ok(all)
    }

    /// Names of variables, as texts or as `{name}`.
    fn names(&mut self, key: &str) -> Result<Vec<String>, String> {
        let items = match self.fields.remove(key) {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(_) => return Err(format!("its `{key}` is no list")),
        };
        let name = |item: &Value| {
            let name = item.as_str().or_else(|| item.get("name")?.as_str())?;
            is_variable(name).then(|| name.to_owned())
        };
        items
            .iter()
            .map(name)
            .collect::<Option<_>>()
            .ok_or(format!("its `{key}` holds something else than names of variables"))
    }
}

const SSE: &str = "HTTP+SSE is not supported; ask for the server's streamable HTTP address, often /mcp";

/// A text, or a number or truth value that the other program hands on as one.
fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests;
