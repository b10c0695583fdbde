"""A small MCP server on stdio that misbehaves as told: fake.py LEDGER WORD[=VALUE]...

Every effect is a line in the ledger file. Words:
  slow=S          wait S seconds before anything
  crash           end at once with code 3
  no-discover     end when asked server/discover
  deaf-discover   never answer server/discover
  modern          speak 2026-07-28 only
  stubborn        ignore SIGTERM and the end of input, and keep a grandchild in its own session
  garbage         noise on stdout around every message
  floats          answer with ids as floats
  pages=N         one tool a page, N pages
  loop            tools/list whose cursor comes round again
"""
import json, os, signal, sys, threading, time

ledger, words = sys.argv[1], dict((w.split("=") + [""])[:2] for w in sys.argv[2:])
out_lock = threading.Lock()
extra_tools = []


def note(text):
    with open(ledger, "a") as f:
        f.write(text + "\n")


def raw(data):
    with out_lock:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def send(message):
    if "garbage" in words:
        raw(b"Listening on stdio...\n\x1b[31mred\x1b[0m\n\xff\xfe\n{\"level\":\"info\"}\n\n")
    raw(json.dumps(message).encode() + b"\n")


def reply(id, result):
    if "floats" in words and isinstance(id, int):
        id = float(id)
    send({"jsonrpc": "2.0", "id": id, "result": result})
    if "garbage" in words:
        send({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "duplicate"}]}})
        send({"jsonrpc": "2.0", "id": 987654, "result": {}})


def error(id, code, message):
    send({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})


def tool(name, **more):
    return {"name": name, "description": "the tool " + name, "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}, **more}


TOOLS = [tool("echo", annotations={"readOnlyHint": True})] + [
    tool(n) for n in ("wait", "steps", "die", "fail", "refuse", "half", "long", "flood", "roots", "ask", "env", "log", "last", "lone", "nan", "torn")
]


def list_tools(id, params):
    cursor = int(params.get("cursor") or 0)
    if "pages" in words:
        more = {"nextCursor": str(cursor + 1)} if cursor + 1 < int(words["pages"]) else {}
        return reply(id, {"tools": [tool("t%d" % cursor)], **more})
    if "loop" in words:
        return reply(id, {"tools": [tool("t%d" % cursor)] if cursor < 3 else [], "nextCursor": str(cursor % 3 + 1)})
    note("list")
    reply(id, {"tools": TOOLS + extra_tools})


def text(id, value, **more):
    reply(id, {"content": [{"type": "text", "text": value}], **more})


def call(id, params):
    name, args, meta = params["name"], params.get("arguments") or {}, params.get("_meta") or {}
    note("call " + name)
    if name == "echo":
        text(id, json.dumps({"args": args, "meta": meta}))
    elif name == "env":
        text(id, json.dumps({"env": dict(os.environ), "cwd": os.getcwd(), "files": os.listdir(".")}))
    elif name == "steps":
        def run():
            for step in range(int(args.get("text") or 4)):
                time.sleep(0.3)
                send({"jsonrpc": "2.0", "method": "notifications/progress",
                      "params": {"progressToken": meta["progressToken"], "progress": step + 1, "total": 4, "message": "step %d" % (step + 1)}})
            text(id, "done")
        threading.Thread(target=run, daemon=True).start()
    elif name == "die":
        os._exit(7)
    elif name == "last":
        text(id, "last words")
        os._exit(0)
    elif name == "fail":
        text(id, "no such thing", isError=True)
    elif name == "refuse":
        error(id, -32602, "bad arguments")
    elif name == "lone":
        raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"a \\ud83d b"}],"structuredContent":{"t":"\\ud83d"}}}\n' % id)
    elif name == "nan":
        raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":{"n":NaN,"s":"NaN"}}}\n' % id)
    elif name == "torn":
        raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"abc}]}}\n' % id)
    elif name == "half":
        raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"caf\xc3"}]}}\n' % id)
    elif name == "long":
        raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % id + b"x" * (20 * 1024 * 1024) + b'"}]}}\n')
    elif name == "flood":
        extra_tools.append(tool("late"))
        meta = {"params": {"_meta": {SUBSCRIPTION: listening[-1]}}} if listening else {}
        for _ in range(int(args.get("text") or 1000)):
            send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", **meta})
        text(id, "flooded")
    elif name == "roots" and "modern" in words:
        if "inputResponses" in params:
            note("state " + params["requestState"])
            return text(id, json.dumps(params["inputResponses"]["r"]))
        reply(id, {"resultType": "input_required", "inputRequests": {"r": {"method": "roots/list"}}, "requestState": "s1"})
    elif name == "ask" and "inputResponses" in params:
        text(id, json.dumps(params["inputResponses"]["q"]))
    elif name == "ask" and args.get("text") == "model":
        reply(id, {"resultType": "input_required", "inputRequests": {"q": {"method": "sampling/createMessage", "params": {}}}})
    elif name == "ask":
        reply(id, {"resultType": "input_required", "inputRequests": {"q": {"method": "elicitation/create", "params": {}}}})
    elif name == "roots":
        waiting[id] = True
        send({"jsonrpc": "2.0", "id": "roots-%d" % id, "method": "roots/list"})
    elif name == "log":
        send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "warning", "data": {"said": "\x1b[2J"}}})
        print("on stderr \x1b[2J", file=sys.stderr, flush=True)
        text(id, "logged")
    elif name == "wait":
        pass  # for ever, until cancelled
    else:
        error(id, -32602, "no tool " + name)


waiting = {}
listening = []
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def handle_modern(m):
    method, id, params = m.get("method"), m.get("id"), m.get("params") or {}
    version = (params.get("_meta") or {}).get("io.modelcontextprotocol/protocolVersion")
    if id is not None and version != "2026-07-28":
        error(id, -32602, "this server speaks 2026-07-28")
    elif method == "server/discover":
        note("discover")
        reply(id, {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": True}},
                   "ttlMs": 0, "cacheScope": "private"})
    elif method == "subscriptions/listen":
        note("listen")
        listening.append(id)
        send({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
              "params": {"_meta": {SUBSCRIPTION: id}, "notifications": {"toolsListChanged": True}}})
    else:
        return False
    return True


def handle(m):
    method, id, params = m.get("method"), m.get("id"), m.get("params") or {}
    if "modern" in words and handle_modern(m):
        pass
    elif method == "initialize":
        note("initialize " + params["protocolVersion"])
        reply(id, {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {"listChanged": True}, "logging": {}},
                   "serverInfo": {"name": "fake", "version": "1"}})
    elif method == "server/discover" and "no-discover" in words:
        sys.exit("what is server/discover?")
    elif method == "server/discover" and "deaf-discover" in words:
        pass
    elif method == "tools/list":
        list_tools(id, params)
    elif method == "tools/call":
        call(id, params)
    elif method == "notifications/cancelled":
        note("cancelled %s" % params.get("requestId"))
    elif method is None and str(id).startswith("roots-"):
        text(int(id[6:]), json.dumps(m.get("result", m.get("error"))))
    elif id is not None:
        error(id, -32601, "Method not found")


note("start %d" % os.getpid())
if "crash" in words:
    print("cannot find my config", file=sys.stderr, flush=True)
    sys.exit(3)
if "stubborn" in words:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        os.close(1)
        note("start %d" % os.getpid())
        time.sleep(600)
time.sleep(float(words.get("slow") or 0))
for line in sys.stdin.buffer:
    handle(json.loads(line))
note("end of input")
while "stubborn" in words:
    time.sleep(1)
