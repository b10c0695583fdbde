"""A server that shows the key that it was given wherever it can.

Arguments: `up`, or `die` before the handshake.
"""

import json
import os
import sys

key = os.environ["KEY"]


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def answer(id, text, is_error):
    send({"id": id, "result": {"content": [{"type": "text", "text": text}], "isError": is_error}})


print("configured with " + repr(key), flush=True)
print("stderr " + key, file=sys.stderr, flush=True)
print("stderr " + json.dumps({"k": key}), file=sys.stderr, flush=True)
if sys.argv[1] == "die":
    sys.exit(3)

schema = {"type": "object", "properties": {"a": {"type": "string", "default": key}}}
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        info = {"name": "leaky", "version": "1"}
        send({"id": id, "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}})
    elif method == "tools/list":
        tools = [{"name": n, "description": "not " + key, "inputSchema": schema} for n in ("error", "fail", "give")]
        send({"id": id, "result": {"tools": tools}})
    elif method == "tools/call":
        send({"method": "notifications/message", "params": {"level": "error", "data": {"key": key}}})
        name = message["params"]["name"]
        if name == "error":
            send({"id": id, "error": {"code": -32000, "message": "bad key " + key, "data": key}})
        else:
            answer(id, "the key is " + key, name == "fail")
    elif id is not None:
        send({"id": id, "error": {"code": -32601, "message": "no " + key}})
