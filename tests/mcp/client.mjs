// The TypeScript SDK as a client: prints what it saw, which tests/mcp/main.rs compares.
//   client.mjs HOTCELL     starts `hotcell mcp`
//   client.mjs URL KEY     asks a server

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const PNG =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
const code = `import base64
open('a.png', 'wb').write(base64.b64decode('${PNG}'))
open('made.txt', 'w').write('content')
print(6 * 7)
`;

const [, , target, key] = process.argv;
const transport = target.startsWith("http:")
  ? new StreamableHTTPClientTransport(new URL(target), {
      requestInit: { headers: { Authorization: `Bearer ${key}` } },
    })
  : new StdioClientTransport({ command: target, args: ["mcp"], env: process.env });
const client = new Client({ name: "test", version: "1" }, { capabilities: {} });
await client.connect(transport);
const call = (name, args, options) =>
  client.callTool({ name, arguments: args }, undefined, options);

console.log("server", client.getServerVersion().name);
const names = (await client.listTools()).tools.map((tool) => tool.name);
console.log("tools", ...["run_code", "fs-read", "fs-write"].map((name) => names.includes(name)));
console.log("add", (await call("add", { a: 1, b: 2 })).content[0].text);
console.log("read", (await call("fs-read", { path: "a.txt" })).structuredContent.text.trim());

const ran = await call("run_code", { language: "python", code });
console.log("code", ran.structuredContent.stdout.trim());
console.log("image", ran.content.find((block) => block.type === "image").mimeType);
const link = ran.content.find((one) => one.type === "resource_link" && one.name === "made.txt");
const read = await client.readResource({ uri: link.uri });
console.log("link", link.uri.split(":")[0], read.contents[0].text);

const refused = await call("fs-write", { path: "a", text: "b" });
console.log("refused", refused.isError, refused.content[0].text.includes("fix: "));

let told = 0;
await call("run_code", { command: ["sleep", "1.5"] }, { onprogress: () => (told += 1) });
console.log("progress", told >= 1);

const begun = Date.now();
const stop = new AbortController();
const long = call("run_code", { command: ["sleep", "60"] }, { signal: stop.signal });
setTimeout(() => stop.abort(), 500);
await long.catch(() => {});
await call("add", { a: 1, b: 2 });
console.log("cancelled", Date.now() - begun < 30000);
await client.close();
console.log("end");
