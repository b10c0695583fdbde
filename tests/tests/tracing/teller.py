"""A tool server on stdio that answers with the trace it was called in, and with what it was told: teller.py LEDGER."""
import json, sys, threading, time

ledger = sys.argv[1]
lock = threading.Lock()
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}, "ms": {"type": "integer"}}}
TOOLS = [{"name": "tell", "description": "tells", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": False}}]


def send(message):
    with lock:
        print(json.dumps(message), flush=True)


def call(id, params):
    args = params.get("arguments") or {}
    with open(ledger, "a") as f:
        f.write("begin\n")
    time.sleep(args.get("ms", 0) / 1000)
    with open(ledger, "a") as f:
        f.write("end\n")
    said = {"traceparent": params.get("_meta", {}).get("traceparent"), "text": args.get("text")}
    content = [{"type": "text", "text": json.dumps(said)}]
    send({"jsonrpc": "2.0", "id": id, "result": {"content": content, "structuredContent": said}})


for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m or "method" not in m:
        continue
    if m["method"] == "initialize":
        send({"jsonrpc": "2.0", "id": m["id"], "result": {
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "teller", "version": "1"}}})
    elif m["method"] == "tools/list":
        send({"jsonrpc": "2.0", "id": m["id"], "result": {"tools": TOOLS}})
    elif m["method"] == "tools/call":
        threading.Thread(target=call, args=(m["id"], m["params"]), daemon=True).start()
    elif m["method"] == "ping":
        send({"jsonrpc": "2.0", "id": m["id"], "result": {}})
    else:
        send({"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32601, "message": "no such method"}})
