"""A small MCP server on streamable HTTP that misbehaves as told: fake_http.py LEDGER PORT WORD[=VALUE]...

Words:
  401             refuse everything, and speak of tokens
  quiet401        refuse everything without a word
  tls=CERT,KEY    speak TLS
  client=CA       want a client certificate of this authority
  redirect=URL    send every request elsewhere (307)
  need=VALUE      want this in the header X-Key
  basic=VALUE     want this in the header Authorization
Tools: echo, wait (for ever, as an event stream that says nothing), die (end at once), forget (the session is forgotten and a tool appears), big (20 MiB), broken (HTTP 500),
  hold (answers when the file `go` lies beside the ledger), plain (text instead of JSON), cut (the connection ends), lost (404, once more each time),
  lone (half a surrogate pair and a NaN).
"""
import json, os, socket, ssl, sys, time, uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ledger, port = sys.argv[1], int(sys.argv[2])
words = dict((w.split("=", 1) + [""])[:2] for w in sys.argv[3:])
sessions, names = set(), ["echo", "wait", "die", "forget", "big", "broken", "hold", "plain", "cut", "lost", "lone"]


def note(text):
    with open(ledger, "a") as f:
        f.write(text + "\n")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, body=None, **headers):
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        if body is not None:
            self.send_header("Content-Type", "application/json")
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.answer(405)

    def do_DELETE(self):
        note("delete")
        sessions.discard(self.headers.get("Mcp-Session-Id"))
        self.answer(200)

    def do_POST(self):
        m = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, id, params = m.get("method"), m.get("id"), m.get("params") or {}
        if "401" in words:
            return self.answer(401, None, WWW_Authenticate="Bearer")
        if "quiet401" in words:
            return self.answer(401, {"error": "who are you?"})
        if "basic" in words and self.headers.get("Authorization") != words["basic"]:
            return self.answer(401, None, WWW_Authenticate='Basic realm="f"')
        if "redirect" in words:
            return self.answer(307, None, Location=words["redirect"])
        if "need" in words and self.headers.get("X-Key") != words["need"]:
            return self.answer(403, {"error": "no key"})

        def result(value, **headers):
            self.answer(200, {"jsonrpc": "2.0", "id": id, "result": value}, **headers)

        if method == "initialize":
            session = uuid.uuid4().hex
            sessions.add(session)
            note("initialize")
            return result({"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "f", "version": "1"}},
                          Mcp_Session_Id=session)
        if method == "server/discover":
            return self.answer(400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "Bad Request: no session"}})
        if self.headers.get("Mcp-Session-Id") not in sessions:
            return self.answer(404, {"jsonrpc": "2.0", "id": id, "error": {"code": -32001, "message": "Session not found"}})
        if method == "notifications/cancelled":
            note("cancelled")
        if id is None:
            return self.answer(202)
        if method == "tools/list":
            return result({"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in names]})
        name = params.get("name")
        note("call %s" % name)
        if name == "die":
            os._exit(7)
        if name == "wait":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b": still here\n\n")
                    self.wfile.flush()
                    time.sleep(0.1)
            except OSError:
                return note("stream closed")
        if name == "forget":
            names.append("new")
            sessions.clear()
        if name == "hold":
            go = os.path.join(os.path.dirname(ledger), "go")
            while not os.path.exists(go):
                time.sleep(0.02)
        if name == "plain":
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", "2")
            self.end_headers()
            return self.wfile.write(b"ok")
        if name == "cut":
            self.close_connection = True
            return self.connection.shutdown(socket.SHUT_RDWR)
        if name == "lost":
            return self.answer(404)
        if name == "lone":
            body = b'data: {"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"a \\ud83d b"}],"structuredContent":{"n":NaN}}}\n\n' % id
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            return self.wfile.write(body)
        if name == "broken":
            return self.answer(500, {"oops": True})
        text = "x" * (20 << 20) if name == "big" else json.dumps({"args": params.get("arguments"), "meta": params.get("_meta")})
        result({"content": [{"type": "text", "text": text}]})


ThreadingHTTPServer.allow_reuse_address = True
server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
if "tls" in words:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*words["tls"].split(","))
    if "client" in words:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(words["client"])
    # The handshake in the connection's own thread.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
note("start %d" % os.getpid())
server.serve_forever()
