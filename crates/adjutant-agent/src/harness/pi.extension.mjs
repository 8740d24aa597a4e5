// Adjutant's extension for pi: it offers the worker's tools, and requests approval for every tool call that changes
// something. Each call is sent to Adjutant over pi's RPC mode and blocked unless Adjutant allows it. The address and
// the token are in the file beside this one.

import { readFileSync } from "node:fs";
import http from "node:http";

const READING = new Set(["read", "grep", "find", "ls"]);
const META = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientInfo": { name: "adjutant-pi", version: "1" },
  "io.modelcontextprotocol/clientCapabilities": {},
};

// A separate HTTP agent: it uses no proxy of the environment and has no timeout.
const agent = new http.Agent();

function call(access, method, params, signal) {
  const { promise, resolve, reject } = Promise.withResolvers();
  const headers = {
    authorization: "Bearer " + access.token,
    "content-type": "application/json",
    accept: "application/json, text/event-stream",
    "mcp-protocol-version": META["io.modelcontextprotocol/protocolVersion"],
    "mcp-method": method,
  };
  if (params.name) headers["mcp-name"] = params.name;
  const request = http.request(access.url, { method: "POST", agent, signal, headers }, (response) => {
    const pieces = [];
    response.on("data", (piece) => pieces.push(piece));
    response.on("error", reject);
    response.on("end", () => {
      try {
        const text = Buffer.concat(pieces).toString("utf8");
        if (response.statusCode !== 200) throw new Error("HTTP status " + response.statusCode + ": " + text.trim());
        const reply = messages(text, response.headers["content-type"] ?? "").find((message) => message.id === 1);
        if (!reply) throw new Error("the connection ended without an answer");
        if (reply.error) throw new Error(reply.error.message);
        resolve(reply.result);
      } catch (error) {
        reject(error);
      }
    });
  });
  request.on("error", reject);
  request.end(JSON.stringify({ jsonrpc: "2.0", id: 1, method, params: { ...params, _meta: META } }));
  return promise;
}

function messages(text, type) {
  if (!type.startsWith("text/event-stream")) return [JSON.parse(text)];
  const data = text.split("\n").filter((line) => line.startsWith("data:"));
  return data.map((line) => line.slice(5).trim()).filter((line) => line !== "").map((line) => JSON.parse(line));
}

// Prevents extensions that run later from changing an approved call.
function freeze(value) {
  if (value === null || typeof value !== "object") return;
  Object.values(value).forEach(freeze);
  Object.freeze(value);
}

export default async function (pi) {
  const access = JSON.parse(readFileSync(new URL("agent-access.json", import.meta.url), "utf8"));
  const { tools } = await call(access, "tools/list", {});
  const own = new Set(tools.map((tool) => tool.name));

  for (const tool of tools) {
    pi.registerTool({
      name: tool.name,
      label: tool.title ?? tool.name,
      description: tool.description,
      parameters: tool.inputSchema,
      async execute(_id, args, signal) {
        const result = await call(access, "tools/call", { name: tool.name, arguments: args }, signal);
        const content = result.content.filter((block) => block.type === "text");
        if (result.isError) throw new Error(content.map((block) => block.text).join("\n"));
        return { content, details: undefined };
      },
    });
  }

  pi.on("tool_call", async (event, context) => {
    if (own.has(event.toolName) || READING.has(event.toolName)) return undefined;
    freeze(event.input);
    const asked = JSON.stringify({ adjutant: "permission", tool: event.toolName, input: event.input });
    const said = JSON.parse((await context.ui.input(asked, undefined, { signal: context.signal })) ?? "{}");
    return said.allow === true ? undefined : { block: true, reason: said.deny ?? "it was not approved" };
  });

  pi.on("session_start", (_event, context) => context.ui.setStatus("adjutant", "ready"));
}
