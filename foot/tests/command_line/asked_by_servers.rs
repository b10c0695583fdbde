//! A server's question in the middle of a call, with the real program on a pseudo-terminal and a server that asks.

use serde_json::{Value, json};

use crate::asking::sit_down;
use crate::packs::{Place, ended};

/// Asks for a name, an age and a colour when its tool is called, and answers with what it got.
const SERVER: &str = r##"
import json, sys

SCHEMA = {"type": "object", "required": ["name", "age"], "properties": {
    "name": {"type": "string", "description": "Who you are"},
    "age": {"type": "integer", "minimum": 1},
    "colour": {"type": "string", "enum": ["red", "green"], "default": "red"}}}
def send(**m): print(json.dumps({"jsonrpc": "2.0", **m}), flush=True)
def text(id, t): send(id=id, result={"content": [{"type": "text", "text": t}]})
asks, call = False, None
for line in sys.stdin:
    m = json.loads(line)
    method, id = m.get("method"), m.get("id")
    if method == "initialize":
        asks = "elicitation" in m["params"]["capabilities"]
        send(id=id, result={"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}},
                            "serverInfo": {"name": "asks", "version": "1"}})
    elif method == "tools/list":
        send(id=id, result={"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]})
    elif method == "tools/call" and not asks:
        text(id, "nobody can be asked")
    elif method == "tools/call":
        call = id
        send(id="q", method="elicitation/create",
             params={"message": "Who is\nthere?\x1b[2J", "requestedSchema": SCHEMA})
    elif method is None and id == "q":
        text(call, "GOT " + json.dumps(m["result"], sort_keys=True) + " END")
    elif id is not None:
        send(id=id, error={"code": -32601, "message": "Method not found"})
"##;

const CALL: &[&str] = &["tools", "call", "jira__ask", "{}"];

fn place() -> Place {
    let place = Place::new();
    let server = place.put("server.py", SERVER);
    let parameters = json!({"transport": "stdio", "command": ["python3", server]});
    let pack = json!({"name": "jira", "type": "mcp_server", "parameters": parameters});
    place.put("vance/foot-tools/jira.json", &pack.to_string());
    place
}

/// What the server got.
fn got(text: &str) -> Value {
    let result = text.split("GOT ").nth(1).unwrap_or_else(|| panic!("{text}"));
    serde_json::from_str(result.split(" END").next().unwrap()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_person_answers_field_by_field_declines_or_leaves_it() {
    let decline = json!({"action": "decline"});
    let cancel = json!({"action": "cancel"});
    let accept = |colour: &str| json!({"action": "accept", "content": {"name": "Ada", "age": 36, "colour": colour}});
    for (typed, want, shown) in [
        (vec!["1", "Ada", "old", "0", "36", "2"], accept("green"), "that is not a whole number"),
        (vec!["1", "", "Ada", "36", ""], accept("red"), "it is required"),
        (vec!["2"], decline, "[2] decline"),
        (vec!["Ada"], cancel.clone(), "that is not one of 1, 2: nothing is answered"),
        (vec!["1", "Ada", "a", "b", "c"], cancel.clone(), "that was 3 times: nothing is answered"),
        (vec!["1", "\u{4}"], cancel, "end of input: nothing is answered"),
    ] {
        let place = place();
        let mut command = place.program(CALL);
        command.env("TERM", "xterm");
        let mut seat = sit_down(command);
        for (asked, keys) in typed.iter().enumerate() {
            seat.until(|text| text.matches('\u{203a}').count() > asked);
            seat.types(&if *keys == "\u{4}" { (*keys).to_owned() } else { format!("{keys}\n") });
        }
        let (exit, text) = seat.leaves();
        assert!(exit == 0 && text.contains(shown), "{typed:?}: exit {exit}: {text}");
        assert_eq!(got(&text), want, "{typed:?}: {text}");
        let opening =
            "The server of pack 'jira' asks\r\n  Who is\r\n  there?\\x1b[2J\r\n  to fill in: name, age, colour\r\n";
        assert!(text.contains(opening) && text.contains("[1] answer  [2] decline \u{203a} "), "{text}");
        if typed[0] == "1" {
            assert!(text.contains("  Who you are\r\n  name (text, required) \u{203a} "), "{text}");
        }
    }
}

#[test]
fn servers_hear_beforehand_that_nobody_can_be_asked() {
    let place = place();
    let piped = ended(place.program(CALL), "1\nAda\n36\n\n");
    assert!(piped.exit == 0 && piped.out.contains("nobody can be asked"), "{piped:?}");
    let mut json = CALL.to_vec();
    json.push("--json");
    let (mut json, mut dumb) = (place.program(&json), place.program(CALL));
    json.env("TERM", "xterm");
    dumb.env("TERM", "dumb");
    for command in [json, dumb] {
        let (exit, text) = sit_down(command).leaves();
        assert!(exit == 0 && text.contains("nobody can be asked") && !text.contains("asks"), "{exit}: {text}");
    }
}
