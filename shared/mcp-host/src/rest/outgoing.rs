//! From a built request to bytes that can be sent.

use std::fmt::Write as _;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use vance_rest::error::Code;
use vance_rest::request::{Data, Part, Payload, Request};
use vance_shared::call::Fault;

use super::send::{Outgoing, header};

/// Bytes of all files and texts of one request.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// A whole file, or why it is not read.
type FileRead = BoxFuture<'static, Result<Vec<u8>, Fault>>;

/// Reads files of this machine for requests, under the rules of whoever runs it.
#[derive(Clone)]
pub struct ReadFile(pub Arc<dyn Fn(String) -> FileRead + Send + Sync>);

impl std::fmt::Debug for ReadFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReadFile")
    }
}

/// Reads the files that a request names, and puts its parts together.
pub(super) async fn outgoing(request: Request, read: Option<&ReadFile>) -> Result<Outgoing, Fault> {
    let method = Method::from_bytes(request.method.as_bytes())
        .map_err(|_| Code::InvalidArgument.fault("its method is no word that can be sent"))?;
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        let (name, value) = header(name, value).map_err(|why| Code::InvalidArgument.fault(why))?;
        headers.append(name, value);
    }
    // What of all files and texts has room yet: looked at after each file, so that no more than one is read in vain.
    let mut room = MAX_BODY_BYTES;
    let body = match request.body {
        Payload::None => None,
        Payload::Json(text) | Payload::Text(text) => Some(text.into_bytes()),
        Payload::Data(data) => Some(bytes(data, read, &mut room).await?),
        Payload::Multipart(parts) => {
            let mut read_parts = Vec::with_capacity(parts.len());
            for Part { name, filename, content_type, data } in parts {
                let data = bytes(data, read, &mut room).await?;
                read_parts.push(Piece { name, filename, content_type, data });
            }
            let (kind, body) = multipart(&read_parts);
            let kind =
                HeaderValue::try_from(kind).map_err(|_| Code::InvalidArgument.fault("its type cannot be sent"))?;
            headers.insert(HeaderName::from_static("content-type"), kind);
            Some(body)
        }
    };
    if body.as_ref().is_some_and(|body| body.len() > MAX_BODY_BYTES) {
        return Err(too_large());
    }
    Ok(Outgoing { method, url: request.url, headers, body })
}

fn too_large() -> Fault {
    Code::InvalidArgument.fault(format!("the request has more than {MAX_BODY_BYTES} bytes"))
}

async fn bytes(data: Data, read: Option<&ReadFile>, room: &mut usize) -> Result<Vec<u8>, Fault> {
    let bytes = match (data, read) {
        (Data::Bytes(bytes), _) => bytes,
        (Data::Path(path), Some(read)) => (read.0)(path).await?,
        (Data::Path(_), None) => return Err(Code::FileAccess.fault("files of this machine are not read here")),
    };
    *room = room.checked_sub(bytes.len()).ok_or_else(too_large)?;
    Ok(bytes)
}

struct Piece {
    name: String,
    filename: Option<String>,
    content_type: Option<String>,
    data: Vec<u8>,
}

/// The type with its boundary, and the body.
fn multipart(parts: &[Piece]) -> (String, Vec<u8>) {
    let boundary = boundary(parts);
    let mut body = Vec::new();
    for part in parts {
        let mut head = format!("--{boundary}\r\ncontent-disposition: form-data; name=\"{}\"", quoted(&part.name));
        if let Some(filename) = &part.filename {
            let written = write!(head, "; filename=\"{}\"", quoted(filename));
            debug_assert!(written.is_ok(), "writing to a String cannot fail");
        }
        head.push_str("\r\n");
        if let Some(content_type) = &part.content_type {
            let plain: String = content_type.chars().filter(|c| !c.is_control()).collect();
            head.push_str(&format!("content-type: {plain}\r\n"));
        }
        head.push_str("\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(&part.data);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    (format!("multipart/form-data; boundary={boundary}"), body)
}

/// A line that no part holds.
fn boundary(parts: &[Piece]) -> String {
    let mut number = 0_u64;
    loop {
        let boundary = format!("vancetope-{number:016x}");
        if parts.iter().all(|part| memchr::memmem::find(&part.data, boundary.as_bytes()).is_none()) {
            return boundary;
        }
        number += 1;
    }
}

/// As browsers write names in forms: nothing ends the quotes or the line.
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn files_are_read_until_they_are_too_much_and_no_further() {
        let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let reads = Arc::clone(&count);
        let read = ReadFile(Arc::new(move |_| {
            reads.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Box::pin(async { Ok(vec![0; 30 * 1024 * 1024]) })
        }));
        let part = |n: usize| Part {
            name: n.to_string(),
            filename: None,
            content_type: None,
            data: Data::Path(format!("file-{n}")),
        };
        let request = Request {
            method: "POST".to_owned(),
            url: "https://a.example/".parse().unwrap(),
            headers: Vec::new(),
            body: Payload::Multipart((0..10).map(part).collect()),
        };
        let fault = outgoing(request, Some(&read)).await.err().unwrap();
        assert!(fault.message.contains("more than 67108864 bytes"), "{}", fault.message);
        assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 3);
    }

    #[test]
    fn no_part_and_no_name_ends_a_form_early() {
        let piece = |name: &str, data: &str| Piece {
            name: name.to_owned(),
            filename: Some("a\"\r\nb".to_owned()),
            content_type: Some("text/plain\r\nx: y".to_owned()),
            data: data.as_bytes().to_vec(),
        };
        let (kind, body) = multipart(&[piece("n", "--vancetope-0000000000000000--")]);
        assert_eq!(kind, "multipart/form-data; boundary=vancetope-0000000000000001");
        let want = "--vancetope-0000000000000001\r\ncontent-disposition: form-data; name=\"n\"; filename=\"a%22%0D%0Ab\"\r\n\
                    content-type: text/plainx: y\r\n\r\n--vancetope-0000000000000000--\r\n--vancetope-0000000000000001--\r\n";
        assert_eq!(String::from_utf8(body).unwrap(), want);
    }
}
