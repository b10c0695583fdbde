"""An MCP server that wants a login, with its authorization server: fake_oauth.py LEDGER PORT WORD[=VALUE]...

Words:
  life=SECONDS    how long an access token lives (default 3600)
  deny            the person says no
  secret          registered clients get a secret, and must show it
  closed          no registration
  text            the life of a token is a text
  nopkce          the server does not say that it takes PKCE
  page            tokens are asked for in vain: an error page
  ill             the first answer to a device code is an error page
  echo            a refresh is refused for now, in words that repeat the token
  scope           calls want the scope `more`
  device          device codes; somebody allows them at /allow?CODE, or never
Paths beside OAuth's own: /mcp, /revoke (all access tokens), /forget (all refresh tokens).
Tool: echo.
"""
import base64, hashlib, json, os, sys, time, uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlparse

ledger, port = sys.argv[1], int(sys.argv[2])
words = dict((w.split("=", 1) + [""])[:2] for w in sys.argv[3:])
life = int(words.get("life", "3600"))
base = "http://127.0.0.1:%d" % port
resource = base + "/mcp"
clients, codes, access, refresh = {"given": "given-secret"}, {}, {}, {}
devices, allowed = {}, set()
ill = ["ill" in words]


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

    def do_DELETE(self):
        self.answer(200)

    def do_GET(self):
        url = urlparse(self.path)
        ask = {k: v[0] for k, v in parse_qs(url.query).items()}
        if url.path == "/.well-known/oauth-protected-resource/mcp":
            return self.answer(200, {"resource": resource, "authorization_servers": [base], "scopes_supported": ["mcp:use"]})
        if url.path == "/.well-known/oauth-authorization-server":
            methods = ["client_secret_post", "none"]
            meta = {"issuer": base, "authorization_endpoint": base + "/authorize", "token_endpoint": base + "/token",
                    "response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"],
                    "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
                    "token_endpoint_auth_methods_supported": methods}
            if "nopkce" in words:
                del meta["code_challenge_methods_supported"]
            if "device" in words:
                meta["device_authorization_endpoint"] = base + "/device"
            if "closed" not in words:
                meta["registration_endpoint"] = base + "/register"
            return self.answer(200, meta)
        if url.path == "/authorize":
            note("authorize resource=%s scope=%s" % (ask.get("resource") == resource, ask.get("scope")))
            back = {"state": ask["state"]}
            if "deny" in words:
                back["error"] = "access_denied"
            else:
                code = uuid.uuid4().hex
                codes[code] = (ask["code_challenge"], ask["client_id"], ask["redirect_uri"])
                back["code"] = code
            return self.answer(302, None, Location=ask["redirect_uri"] + "?" + urlencode(back))
        if url.path == "/allow":
            allowed.add(url.query)
            return self.answer(200)
        if url.path == "/revoke":
            access.clear()
            return self.answer(200)
        if url.path == "/forget":
            access.clear()
            refresh.clear()
            return self.answer(200)
        self.answer(405 if url.path == "/mcp" else 404)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/register":
            client = uuid.uuid4().hex
            clients[client] = uuid.uuid4().hex if "secret" in words else None
            note("register")
            said = json.loads(body)
            answer = {"client_id": client, "redirect_uris": said["redirect_uris"]}
            if clients[client]:
                answer["client_secret"] = clients[client]
            return self.answer(201, answer)
        if self.path == "/device":
            ask = {k: v[0] for k, v in parse_qs(body.decode()).items()}
            device, code = uuid.uuid4().hex, uuid.uuid4().hex[:8].upper()
            devices[device] = code
            note("device resource=%s scope=%s" % (ask.get("resource") == resource, ask.get("scope")))
            page = base + "/allow"
            return self.answer(200, {"device_code": device, "user_code": code, "verification_uri": page,
                                     "verification_uri_complete": page + "?" + code, "expires_in": 60, "interval": 1})
        if self.path == "/token":
            return self.token({k: v[0] for k, v in parse_qs(body.decode()).items()})
        self.mcp(json.loads(body))

    def token(self, ask):
        grant, client = ask["grant_type"], ask.get("client_id")
        note("token %s" % grant)
        if "page" in words or (ill[0] and grant.endswith("device_code")):
            ill[0] = False
            self.send_response(500)
            self.send_header("Content-Length", "4")
            self.end_headers()
            return self.wfile.write(b"oops")
        if ask.get("resource") != resource:
            return self.answer(400, {"error": "invalid_target"})
        if client not in clients or (clients[client] or None) != ask.get("client_secret"):
            return self.answer(401, {"error": "invalid_client"})
        if grant == "authorization_code":
            challenge, owner, redirect = codes.pop(ask["code"], (None, None, None))
            verifier = base64.urlsafe_b64encode(hashlib.sha256(ask["code_verifier"].encode()).digest()).rstrip(b"=").decode()
            if (challenge, owner, redirect) != (verifier, client, ask["redirect_uri"]):
                return self.answer(400, {"error": "invalid_grant"})
        elif grant == "urn:ietf:params:oauth:grant-type:device_code":
            code = devices.get(ask["device_code"])
            if "deny" in words:
                return self.answer(400, {"error": "access_denied"})
            if code not in allowed:
                return self.answer(400, {"error": "authorization_pending"})
            del devices[ask["device_code"]]
        elif grant == "refresh_token":
            if "echo" in words:
                return self.answer(400, {"error": "temporarily_unavailable", "error_description": "not " + ask["refresh_token"]})
            # Each is good for one time.
            if refresh.pop(ask["refresh_token"], None) != client:
                return self.answer(400, {"error": "invalid_grant"})
            time.sleep(0.2)
        token = uuid.uuid4().hex
        access[token] = time.time() + life
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": str(life) if "text" in words else life, "scope": "mcp:use"}
        if grant != "client_credentials":
            answer["refresh_token"] = uuid.uuid4().hex
            refresh[answer["refresh_token"]] = client
        self.answer(200, answer)

    def mcp(self, m):
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if access.get(token, 0) < time.time():
            return self.answer(401, None, WWW_Authenticate='Bearer resource_metadata="%s/.well-known/oauth-protected-resource/mcp"' % base)
        method, id, params = m.get("method"), m.get("id"), m.get("params") or {}

        def result(value):
            self.answer(200, {"jsonrpc": "2.0", "id": id, "result": value})

        if id is None:
            return self.answer(202)
        if method == "initialize":
            return result({"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "f", "version": "1"}})
        if method == "server/discover":
            return self.answer(400, {"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}})
        if method == "tools/list":
            return result({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]})
        if method == "ping":
            return result({})
        if "scope" in words:
            return self.answer(403, None, WWW_Authenticate='Bearer error="insufficient_scope", scope="more"')
        note("call %s" % params.get("name"))
        result({"content": [{"type": "text", "text": json.dumps(params.get("arguments"))}]})


ThreadingHTTPServer.allow_reuse_address = True
server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
note("start %d" % os.getpid())
server.serve_forever()
