"""A client of `hotcell mcp` in a few lines, without any package: starts it, runs code, reads what that made."""

import json
import subprocess

server = subprocess.Popen(["hotcell", "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
ids = iter(range(1, 1000))


def ask(method, params):
    id = next(ids)
    print(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}),
          file=server.stdin, flush=True)
    for line in server.stdout:
        message = json.loads(line)
        if message.get("id") == id:
            return message["result"]


ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {},
                   "clientInfo": {"name": "example", "version": "1"}})
print(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}), file=server.stdin, flush=True)

tools = ask("tools/list", {})["tools"]
print("run_code" in [tool["name"] for tool in tools])

code = "print(6 * 7); open('made.txt', 'w').write('made in a sandbox')"
ran = ask("tools/call", {"name": "run_code", "arguments": {"language": "python", "code": code}})
print(ran["structuredContent"]["stdout"].strip())

link = next(block for block in ran["content"] if block["type"] == "resource_link")
print(ask("resources/read", {"uri": link["uri"]})["contents"][0]["text"])

refused = ask("tools/call", {"name": "fs-write", "arguments": {"path": "a.txt", "text": "hello"}})
print(refused["content"][0]["text"])

server.stdin.close()
server.wait()
