//! Server-sent events from bytes, piece by piece: pure, so that every way of cutting a stream is a test.

/// Longest line and longest data of one event, in bytes: an event names ids and a reason, it carries no payload.
pub(crate) const MAX_EVENT_BYTES: usize = 256 * 1024;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    /// The stream's position after it, if the server numbers its events.
    pub(crate) id: Option<String>,
    /// The data lines, joined.
    pub(crate) data: String,
}

/// A stream that is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadStream {
    /// A line or an event beyond [`MAX_EVENT_BYTES`].
    #[error("an event is larger than {MAX_EVENT_BYTES} bytes")]
    TooLarge,
}

/// What is left over from the pieces so far.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    after_cr: bool,
    id: Option<String>,
    data: Vec<String>,
    data_bytes: usize,
}

impl Parser {
    /// Takes the next bytes, gives the events that they complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Message>, BadStream> {
        let mut messages = Vec::new();
        for &byte in bytes {
            let follows_cr = std::mem::replace(&mut self.after_cr, byte == b'\r');
            match byte {
                b'\n' if follows_cr => {}
                b'\n' | b'\r' => {
                    let line = std::mem::take(&mut self.line);
                    messages.extend(self.end_line(&String::from_utf8_lossy(&line))?);
                }
                _ if self.line.len() >= MAX_EVENT_BYTES => return Err(BadStream::TooLarge),
                _ => self.line.push(byte),
            }
        }
        Ok(messages)
    }

    fn end_line(&mut self, line: &str) -> Result<Option<Message>, BadStream> {
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            self.data_bytes = 0;
            let message = Message { id: self.id.clone(), data: data.join("\n") };
            return Ok((!data.is_empty()).then_some(message));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                self.data_bytes += value.len() + 1;
                if self.data_bytes > MAX_EVENT_BYTES {
                    return Err(BadStream::TooLarge);
                }
                self.data.push(value.to_owned());
            }
            // It becomes a header: only what is fit for one.
            "id" if value.bytes().all(|b| (0x20..0x7f).contains(&b)) => self.id = Some(value.to_owned()),
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn message(id: Option<&str>, data: &str) -> Message {
        Message { id: id.map(str::to_owned), data: data.to_owned() }
    }

    #[test]
    fn events_come_out_however_the_stream_is_cut() {
        let text = b": hello\r\n\r\nid: 7\r\nevent: task\r\ndata: {\"a\":1}\r\n\r\ndata: x\ndata: y\n\nid: 8\n\ndata:z\r\rdata: lost";
        let want = [message(Some("7"), "{\"a\":1}"), message(Some("7"), "x\ny"), message(Some("8"), "z")];
        for step in 1..text.len() {
            let mut parser = Parser::default();
            let got: Vec<Message> = text.chunks(step).flat_map(|piece| parser.push(piece).unwrap()).collect();
            assert_eq!(got, want, "pieces of {step}");
        }
    }

    #[test]
    fn an_id_that_is_no_header_value_is_ignored() {
        let got = Parser::default().push("id: a\u{7f}b\ndata: x\n\n".as_bytes()).unwrap();
        assert_eq!(got, [message(None, "x")]);
    }

    #[test]
    fn an_endless_line_and_an_endless_event_end_in_an_error() {
        let mut parser = Parser::default();
        assert_eq!(parser.push(&vec![b'x'; MAX_EVENT_BYTES + 1]), Err(BadStream::TooLarge));
        let mut parser = Parser::default();
        let line = format!("data: {}\n", "x".repeat(1000));
        let ended = (0..=MAX_EVENT_BYTES / 1000).any(|_| parser.push(line.as_bytes()).is_err());
        assert!(ended);
    }
}
