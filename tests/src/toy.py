"""A tool server on stdio for tests: toy.py LEDGER [WORD[=VALUE]]...

Its effects are lines in the ledger: `begin NAME` and `end NAME`. Words:
  slow=S     answers nothing for S seconds after its start
  never      never answers at all
  crash      ends at once
  noise      garbage on stdout around every answer
  starts     its start is a line too, with who of an earlier start still lives: `start PID [PID]...`
"""
import json, os, sys, threading, time

ledger, words = sys.argv[1], dict((w.split("=") + [""])[:2] for w in sys.argv[2:])
lock = threading.Lock()


def note(text):
    fd = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, (text + "\n").encode())
    os.close(fd)


def send(message):
    with lock:
        if "noise" in words:
            sys.stdout.buffer.write(b"Ready!\n\xff\xfe{\n{\"jsonrpc\":\"2.0\"}\n[1,2]\n\n")
        sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
        sys.stdout.buffer.flush()


def tool(name, safe=False):
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "ms": {"type": "integer"}, "bytes": {"type": "integer"}}}
    return {"name": name, "description": name, "inputSchema": schema, "annotations": {"readOnlyHint": safe}}


TOOLS = [tool("effect"), tool("look", True), tool("die"), tool("die_looking", True), tool("hang"), tool("hang_looking", True), tool("big", True),
         tool("ask"), tool("ask_looking", True), tool("ask_to_open")]
FORM = {"type": "object", "required": ["colour", "count"], "properties": {
    "colour": {"type": "string", "title": "Which colour"}, "count": {"type": "integer", "minimum": 1}, "note": {"type": "string", "default": "none"}}}
asks, answers = {}, {}


def ask(id, name, step):
    """Asks, waits for the answer, writes it down."""
    if "elicitation" not in asks:
        return "nobody can be asked"
    params = {"message": "What about " + step + "?", "requestedSchema": FORM}
    if name == "ask_to_open":
        params = {"mode": "url", "message": "Allow " + step, "url": "https://example.org/" + step, "elicitationId": step}
    question, heard = "q-%s" % id, threading.Event()
    answers[question] = (heard, [])
    send({"jsonrpc": "2.0", "id": question, "method": "elicitation/create", "params": params})
    heard.wait()
    said = json.dumps(answers[question][1][0], sort_keys=True)
    note("answer %s %s" % (step, said))
    return "heard " + said


def call(id, params):
    name, args = params["name"], params.get("arguments") or {}
    step = args.get("name", "")
    note("begin " + step)
    if name in ("die", "die_looking", "hang_looking"):
        # Once: after that the ledger knows of it.
        with open(ledger) as f:
            first = f.read().split("\n").count("begin " + step) == 1
        if first and name == "hang_looking":
            return
        if first:
            os._exit(3)
    if name == "hang":
        return
    time.sleep(args.get("ms", 0) / 1000)
    if name.startswith("ask"):
        heard = ask(id, name, step)
        note("end " + step)
        return send({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": heard}]}})
    note("end " + step)
    text = "x" * args["bytes"] if name == "big" else "did " + step
    send({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}})


if "starts" in words:
    with open(ledger) as f:
        before = [line.split()[1] for line in f if line.startswith("start ")]
    note(" ".join(["start", str(os.getpid())] + [pid for pid in before if os.path.exists("/proc/" + pid)]))
if "crash" in words:
    sys.exit(3)
if "never" in words:
    time.sleep(100000)
time.sleep(float(words.get("slow") or 0))
for line in sys.stdin:
    m = json.loads(line)
    if m.get("method") == "notifications/cancelled":
        note("cancelled %s" % m["params"]["requestId"])
    if m.get("id") in answers and "method" not in m:
        heard, kept = answers[m["id"]]
        kept.append(m.get("result", m.get("error")))
        heard.set()
    if "id" not in m or "method" not in m:
        continue
    if m["method"] == "initialize":
        asks.update(m["params"].get("capabilities", {}))
        send({"jsonrpc": "2.0", "id": m["id"], "result": {
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "toy", "version": "1"}}})
    elif m["method"] == "tools/list":
        send({"jsonrpc": "2.0", "id": m["id"], "result": {"tools": TOOLS}})
    elif m["method"] == "tools/call":
        threading.Thread(target=call, args=(m["id"], m["params"]), daemon=True).start()
    elif m["method"] == "ping":
        send({"jsonrpc": "2.0", "id": m["id"], "result": {}})
    else:
        send({"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32601, "message": "no such method"}})
