"""An HTTP API that misbehaves on request. Writes each request to its ledger: METHOD PATH [detail]."""
import gzip, json, socket, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ledger_path = sys.argv[1]
lock, seen = threading.Lock(), {}


def operation(name, method="get", **more):
    return {method: {"operationId": name, "responses": {"200": {"description": "ok"}}, **more}}


KEY = {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string"}}
NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
PATHS = {
    "/plain": operation("plain", security=[]),
    "/redirect": operation("redirect"),
    "/away": operation("away"),
    "/round": operation("round"),
    "/limited": operation("limited", "post"),
    "/patience": operation("patience"),
    "/unready": operation("unready"),
    "/once": operation("once", "post"),
    "/keyed": operation("keyed", "post", parameters=[KEY]),
    "/nothing": operation("nothing", "delete"),
    "/bomb": operation("bomb"),
    "/slow": operation("slow"),
    "/endless": operation("endless"),
    "/page": operation("page"),
    "/big": operation("big"),
    "/flood": operation("flood", "post"),
    "/silent": operation("silent", "post", parameters=[KEY]),
    "/image": operation("image"),
    "/missing/{name}": operation("missing", parameters=[NAME]),
    "/secure": operation("secure", security=[{"oauth": []}]),
    "/broken": operation("broken", "post"),
}


class Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            headers.setdefault("content_type", "application/json")
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if status != 204:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle_any(self):
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        path = self.path
        with lock:
            count = seen[path] = seen.get(path, 0) + 1
            detail = self.headers.get("idempotency-key") or ""
            with open(ledger_path, "a") as ledger:
                ledger.write(f"{self.command} {path} {detail}\n")
        name = path.rsplit("/", 1)[-1]
        if path == "/spec.json" and seen.get("/from-now-on/empty"):
            self.answer(200, {"openapi": "3.0.3", "info": {"title": "t", "version": "1"}, "paths": {}})
        elif path == "/spec.json" and seen.get("/from-now-on/page"):
            self.answer(200, b"<html>please log in</html>", content_type="text/html")
        elif path == "/spec.json":
            port = self.server.server_address[1]
            flow = {"clientCredentials": {"tokenUrl": f"http://127.0.0.1:{port}/token", "scopes": {}}}
            spec = {
                "openapi": "3.0.3", "info": {"title": "t", "version": "1"}, "servers": [{"url": "/api"}], "paths": PATHS,
                "components": {"securitySchemes": {"oauth": {"type": "oauth2", "flows": flow}}},
            }
            self.answer(200, spec)
        elif path == "/moved.json":
            self.answer(302, location="/spec.json")
        elif path == "/token":
            time.sleep(0.2)
            self.answer(200, {"access_token": f"t{count}", "expires_in": 3600, "token_type": "bearer"})
        elif name == "secure":
            good = self.headers.get("authorization", "") in ("Bearer t2", "Bearer t3")
            self.answer(200 if good else 401, {"good": good})
        elif name == "plain":
            self.answer(200, {"a": 1, "sent": {k.lower(): v for k, v in self.headers.items()}})
        elif name == "redirect":
            self.answer(302, location="/api/plain")
        elif name == "away":
            self.answer(302, location="http://localhost:1/api/plain")
        elif name == "round":
            self.answer(302, location="/api/round")
        elif name == "limited":
            self.answer(429, {}, retry_after="0") if count == 1 else self.answer(200, {"ok": count})
        elif name == "patience":
            self.answer(429, {}, retry_after="3600")
        elif name == "unready":
            self.answer(503, {}) if count == 1 else self.answer(200, {"ok": count})
        elif name in ("once", "keyed"):
            self.answer(503, {"count": count}) if count == 1 else self.answer(200, {"ok": count})
        elif name == "nothing":
            self.answer(204)
        elif name == "bomb":
            self.answer(200, gzip.compress(b"0" * (64 << 20)), content_encoding="gzip", content_type="text/plain")
        elif name == "slow":
            time.sleep(30)
        elif name == "endless":
            self.send_response(200)
            self.send_header("content-type", "text/plain")
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"x")
                    self.wfile.flush()
                    time.sleep(0.05)
            except OSError:
                with lock, open(ledger_path, "a") as ledger:
                    ledger.write("broken off\n")
        elif name == "page":
            self.answer(200, b"<html>not json</html>", content_type="application/json")
        elif name == "big":
            self.answer(200, [{"n": n, "text": "x" * 1000} for n in range(8000)])
        elif name == "flood":
            self.answer(200, [0] * (1 << 20))
        elif name == "silent":
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        elif name == "image":
            self.answer(200, b"\x89PNG\r\n\x1a\n", content_type="image/png")
        elif name == "broken":
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        else:
            self.answer(404, {"error": "no such thing"})

    do_GET = do_POST = do_DELETE = do_PUT = handle_any


server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
server.daemon_threads = True
print(server.server_address[1], flush=True)
server.serve_forever()
