import json, os, sys, time

open(sys.argv[1], "a").close()
def send(**m): print(json.dumps({"jsonrpc": "2.0", **m}), flush=True)
for line in sys.stdin:
    m = json.loads(line)
    method, id = m.get("method"), m.get("id")
    if method == "initialize":
        send(id=id, result={"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}},
                            "serverInfo": {"name": "slow", "version": "1"}})
    elif method == "tools/list":
        send(id=id, result={"tools": [{"name": "work", "description": os.environ.get("SAYS", "works"), "inputSchema": {"type": "object"}}]})
    elif method == "tools/call":
        token = m["params"].get("_meta", {}).get("progressToken")
        if token is not None:
            send(method="notifications/progress", params={"progressToken": token, "progress": 2, "total": 5, "message": "reading\x1b[2J"})
        while not os.path.exists(sys.argv[2]): time.sleep(0.01)
        send(id=id, result={"content": [{"type": "text", "text": "worked"}]})
    elif id is not None:
        send(id=id, error={"code": -32601, "message": "Method not found"})
