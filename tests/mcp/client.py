"""The Python SDK as a client: prints what it saw, which tests/mcp/main.rs compares.

client.py HOTCELL     starts `hotcell mcp`
client.py URL KEY     asks a server
"""

import asyncio
import os
import sys
import time

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
CODE = f"""import base64
open('a.png', 'wb').write(base64.b64decode('{PNG}'))
open('made.txt', 'w').write('content')
print(6 * 7)
"""


def get(thing, *names):
    """Names of fields were spelled otherwise in earlier versions."""
    for name in names:
        if hasattr(thing, name):
            return getattr(thing, name)
    raise AttributeError(names)


def connection():
    if sys.argv[1].startswith("http:"):
        client = create_mcp_http_client(headers={"Authorization": f"Bearer {sys.argv[2]}"})
        return streamable_http_client(sys.argv[1], http_client=client)
    server = StdioServerParameters(command=sys.argv[1], args=["mcp"], env=dict(os.environ))
    return stdio_client(server)


async def main() -> None:
    async with connection() as streams, ClientSession(streams[0], streams[1]) as session:
        hello = await session.initialize()
        print("server", get(hello, "server_info", "serverInfo").name)
        names = [tool.name for tool in (await session.list_tools()).tools]
        print("tools", "run_code" in names, "fs-read" in names, "fs-write" in names)
        print("add", (await session.call_tool("add", {"a": 1, "b": 2})).content[0].text)
        result = await session.call_tool("fs-read", {"path": "a.txt"})
        print("read", get(result, "structured_content", "structuredContent")["text"].strip())

        result = await session.call_tool("run_code", {"language": "python", "code": CODE})
        value = get(result, "structured_content", "structuredContent")
        print("code", value["stdout"].strip())
        image = next(block for block in result.content if block.type == "image")
        print("image", get(image, "mime_type", "mimeType"))
        link = next(b for b in result.content if b.type == "resource_link" and b.name == "made.txt")
        read = await session.read_resource(link.uri)
        print("link", str(link.uri).split(":")[0], read.contents[0].text)

        result = await session.call_tool("fs-write", {"path": "a", "text": "b"})
        print("refused", get(result, "is_error", "isError"), "fix: " in result.content[0].text)

        told = []

        async def progress(seconds, total, message):
            told.append(message)

        await session.call_tool(
            "run_code", {"command": ["sleep", "1.5"]}, progress_callback=progress
        )
        print("progress", len(told) >= 1)

        begun = time.monotonic()
        call = session.call_tool("run_code", {"command": ["sleep", "60"]})
        try:
            await asyncio.wait_for(call, 1)
        except (asyncio.TimeoutError, TimeoutError):
            pass
        await session.call_tool("add", {"a": 1, "b": 2})
        print("cancelled", time.monotonic() - begun < 30)
    print("end")


asyncio.run(main())
