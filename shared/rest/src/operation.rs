//! One operation of a document, as far as requests need it. Schemas stay in the document until somebody asks.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use url::Url;
use vance_shared::call::Fault;
use vance_shared::json::Raw;
use vance_shared::names::ToolName;
use vance_shared::schema::{Checker, Coercion};
use vance_shared::tool::{Annotations, Replay};

/// The header that makes a repetition harmless, where an operation or its pack has it.
pub(crate) const IDEMPOTENCY: &str = "idempotency-key";

/// One operation that became a tool.
#[derive(Debug)]
pub struct Operation {
    /// `<pack>__<sub>`.
    pub name: ToolName,
    /// Upper case.
    pub method: String,
    /// The path template as the document has it.
    pub path: String,
    /// The operation id, if it has one.
    pub id: Option<String>,
    /// The document's tags.
    pub tags: Vec<String>,
    /// For models: summary and description, cleaned and cut.
    pub description: String,
    /// Labels of the pack, of its type, and of the method.
    pub labels: Vec<String>,
    /// What the method promises.
    pub annotations: Annotations,
    /// May it run twice?
    pub replay: Replay,
    /// The document says so.
    pub deprecated: bool,
    /// Whether it is only found by search, if the pack says so or not so.
    pub deferred: Option<bool>,
    pub(crate) template: Vec<Piece>,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) body: Option<Body>,
    pub(crate) base: Base,
    /// Alternatives, each a set of schemes that are used together, with the scopes that each needs. None: nowhere said.
    pub(crate) security: Option<Vec<Vec<Requirement>>>,
    /// What answers it declares.
    pub(crate) accept: String,
    pub(crate) key: Key,
    pub(crate) built: OnceLock<Built>,
}

/// A security scheme by its name, and the scopes that are needed.
pub(crate) type Requirement = (String, Vec<String>);

/// Where the key that makes a repetition harmless goes, if anywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Key {
    None,
    /// The document declares the header: it is this argument.
    Argument(String),
    /// The pack says that the server takes it.
    Added,
}

/// Where requests go if the pack does not say.
#[derive(Debug, Clone)]
pub(crate) enum Base {
    /// The document's own servers.
    Document,
    /// Servers of the operation or its path.
    Own(Arc<Result<Url, Fault>>),
}

/// What is made on first use.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) schema: Raw,
    pub(crate) checker: OnceLock<Option<Checker>>,
    pub(crate) coercion: Option<Coercion>,
}

/// A piece of a path template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// As it stands, already encoded.
    Text(String),
    /// The parameter of that index, in the path.
    Value(usize),
    /// The parameter of that index, in the query that the template holds.
    QueryValue(usize),
}

/// Where a parameter goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Path,
    Query,
    Header,
    Cookie,
    /// The whole query at once.
    QueryString,
}

impl Place {
    /// The document's word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::Header => "header",
            Self::Cookie => "cookie",
            Self::QueryString => "querystring",
        }
    }
}

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Simple,
    Label,
    Matrix,
    Form,
    DeepObject,
    /// Items with one character between them, which is encoded where it has to be.
    Joined(char),
    /// One JSON text.
    Json,
}

/// One parameter that is an argument.
#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) argument: String,
    pub(crate) wire: String,
    pub(crate) place: Place,
    pub(crate) style: Style,
    pub(crate) explode: bool,
    pub(crate) reserved: bool,
    pub(crate) required: bool,
    /// Which of the document's parameters of this operation it is; none: a placeholder that nothing declares.
    pub(crate) source: Option<usize>,
}

/// The request's body.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) argument: String,
    pub(crate) required: bool,
    /// The type on the wire, as the document has it.
    pub(crate) media_type: String,
    pub(crate) kind: BodyKind,
    /// By property: forms only.
    pub(crate) encoding: BTreeMap<String, FieldEncoding>,
}

/// What a body is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyKind {
    Json,
    Multipart,
    Form,
    /// Text as it is, XML too.
    Text,
    /// A file.
    Bytes,
}

/// How one property of a form is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldEncoding {
    pub(crate) style: Option<Style>,
    pub(crate) explode: bool,
    pub(crate) content_type: Option<String>,
}

impl Operation {
    /// `GET /repos/{owner}`: how people call it.
    pub fn title(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// The sub-tool's own name.
    pub fn sub_tool(&self) -> &str {
        self.name.as_str().split_once(vance_shared::names::SUBTOOL_SEPARATOR).map_or(self.name.as_str(), |(_, sub)| sub)
    }

    /// Whether it, or its path, names servers of its own in the document.
    pub fn has_own_server(&self) -> bool {
        match self.base {
            Base::Document => false,
            Base::Own(_) => true,
        }
    }

    /// Whether a key makes repetitions within one call harmless, whatever the method says.
    pub fn repeats_by_key(&self) -> bool {
        self.key != Key::None
    }

    /// Whether another call changes nothing more.
    pub fn repeats_harmlessly(&self) -> bool {
        crate::api::is_idempotent(&self.method)
    }

    /// The arguments that it knows, in order.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &str> {
        let parameters = self.parameters.iter().map(|parameter| parameter.argument.as_str());
        parameters.chain(self.body.iter().map(|body| body.argument.as_str()))
    }
}
