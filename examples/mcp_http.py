"""A client of the Model Context Protocol over HTTP in a few lines, without any package: begins a session at a
`hotcell serve`, runs code, and reads what that made. Its argument is a file with a key in it."""

import json
import sys
import urllib.request

ADDRESS = "http://127.0.0.1:8642/mcp"
headers = {
    "Authorization": "Bearer " + open(sys.argv[1]).read().strip(),
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}
ids = iter(range(1, 1000))


def send(message, method="POST"):
    body = json.dumps(message).encode() if message else None
    request = urllib.request.Request(ADDRESS, body, headers, method=method)
    with urllib.request.urlopen(request) as answer:
        session = answer.headers.get("Mcp-Session-Id")
        if session:
            headers["Mcp-Session-Id"] = session
        # One message, or a stream of events of which each has one.
        text = answer.read().decode()
    lines = [line[len("data: "):] for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines or [text] if line.strip()]


def ask(method, params):
    id = next(ids)
    for message in send({"jsonrpc": "2.0", "id": id, "method": method, "params": params}):
        if message.get("id") == id:
            return message["result"]


ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {},
                   "clientInfo": {"name": "example", "version": "1"}})
send({"jsonrpc": "2.0", "method": "notifications/initialized"})

tools = ask("tools/list", {})["tools"]
print("run_code" in [tool["name"] for tool in tools])

code = "print(6 * 7); open('made.txt', 'w').write('made in a sandbox')"
ran = ask("tools/call", {"name": "run_code", "arguments": {"language": "python", "code": code}})
print(ran["structuredContent"]["stdout"].strip())

link = next(block for block in ran["content"] if block["type"] == "resource_link")
print(ask("resources/read", {"uri": link["uri"]})["contents"][0]["text"])

send(None, "DELETE")
