// An ACP agent on the official TypeScript SDK that does what its prompt tells it, line by line:
//   do: ["say", "hello"]       now
//   then: ["say", "again"]     at the next prompt in the same session
// What an honest agent would never do is written past the SDK, as raw bytes.
//
// ACP_SDK names the SDK's directory. Arguments: --stdio (takes no MCP over HTTP), --load or --resume (goes on in
// sessions), --follow (does what `adj agents test` tells it), --no-shell (but runs no command), --modes JSON, --options JSON, --auth (wants a sign-in), --version N, --greet, --mute METHOD (never answers it).

import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import readline from "node:readline";
import { Readable, Writable } from "node:stream";

const acp = await import(`${process.env.ACP_SDK}/dist/v1/stable/acp.js`);

const args = process.argv.slice(2);
const flag = (name) => args.includes(name);
const value = (name) => (flag(name) ? args[args.indexOf(name) + 1] : undefined);
const json = (name) => (flag(name) ? JSON.parse(value(name)) : undefined);
const sessionsDir = path.join(process.env.HOME ?? "/tmp", ".acp-agent");
const cancelled = new Set();
const sessions = new Map();
const waiting = new Map();
let clientCapabilities;

if (flag("--greet")) process.stdout.write("Welcome!\nnot JSON at all {\n");

function load(id) {
  if (sessions.has(id)) return sessions.get(id);
  try {
    const session = JSON.parse(fs.readFileSync(path.join(sessionsDir, id), "utf8"));
    sessions.set(id, session);
    return session;
  } catch {
    throw acp.RequestError.resourceNotFound(id);
  }
}

function keep(session) {
  fs.mkdirSync(sessionsDir, { recursive: true });
  fs.writeFileSync(path.join(sessionsDir, session.id), JSON.stringify(session));
}

/** Calls one tool of an MCP server, and returns its text. Without a name: lists its tools. */
async function callTool(server, name, input) {
  const messages = [
    { jsonrpc: "2.0", id: 1, method: "initialize", params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "acp-agent", version: "1" } } },
    { jsonrpc: "2.0", method: "notifications/initialized" },
    name ? { jsonrpc: "2.0", id: 2, method: "tools/call", params: { name, arguments: input } } : { jsonrpc: "2.0", id: 2, method: "tools/list", params: {} },
  ];
  let reply;
  if (server.type === "http") {
    const headers = { "content-type": "application/json", accept: "application/json, text/event-stream" };
    for (const header of server.headers) headers[header.name] = header.value;
    for (const message of messages) {
      const response = await fetch(server.url, { method: "POST", headers, body: JSON.stringify(message) });
      const session = response.headers.get("mcp-session-id");
      if (session) headers["mcp-session-id"] = session;
      const text = await response.text();
      const lines = text.startsWith("{") ? [text] : text.split("\n").filter((line) => line.startsWith("data: {")).map((line) => line.slice(6));
      reply = lines.map((line) => JSON.parse(line)).find((line) => line.id === message.id) ?? reply;
    }
  } else {
    const env = { ...process.env };
    for (const variable of server.env) env[variable.name] = variable.value;
    const child = spawn(server.command, server.args, { env, stdio: ["pipe", "pipe", "inherit"] });
    const lines = readline.createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    for (const message of messages) {
      child.stdin.write(`${JSON.stringify(message)}\n`);
      while (message.id !== undefined) {
        const { value: line, done } = await lines.next();
        if (done) throw new Error("the MCP server has ended");
        reply = JSON.parse(line);
        if (reply.id === message.id) break;
      }
    }
    child.stdin.end();
    await new Promise((resolve) => child.on("exit", resolve));
  }
  if (reply.error) return `error: ${reply.error.message}`;
  if (!name) return `${reply.result.tools.length} tools`;
  return reply.result.content.map((part) => part.text).join("\n");
}

const OPTIONS = [
  { optionId: "always", name: "Always", kind: "allow_always" },
  { optionId: "once", name: "Once", kind: "allow_once" },
  { optionId: "no", name: "No", kind: "reject_once" },
];

const raw = (text) => new Promise((resolve) => process.stdout.write(text, resolve));
const line = (message) => raw(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function perform(session, client, [what, ...rest], ctx) {
  const update = (update) => client.notify(acp.methods.client.session.update, { sessionId: session.id, update });
  const say = (text) => update({ sessionUpdate: "agent_message_chunk", content: { type: "text", text } });
  const permission = (toolCall, options = OPTIONS) => ({ sessionId: session.id, toolCall, options });
  const ask = async (toolCall, options) => {
    const { outcome } = await client.request(acp.methods.client.session.requestPermission, permission(toolCall, options));
    return outcome.outcome === "selected" ? outcome.optionId : outcome.outcome;
  };
  switch (what) {
    case "say":
      return say(`${rest[0]}\n`);
    case "mode":
      return say(`mode ${session.mode ?? "none"}, options ${JSON.stringify(session.options ?? {})}\n`);
    case "who":
      return say(`session ${session.id}, turn ${session.turns}, key ${process.env.MY_KEY ?? "none"}, other ${process.env.OTHER_KEY ?? "none"}\n`);
    case "tool":
      return say(`${rest[0]}: ${await callTool(session.server, rest[0], rest[1])}\n`);
    case "list":
      return say(`listed: ${await callTool(session.server)}\n`);
    case "ask":
      return say(`decided: ${await ask(rest[0], rest[1])}\n`);
    case "edit": {
      // Writes only what it was allowed to.
      const [file, text] = rest;
      const at = path.resolve(session.cwd, file);
      const call = { toolCallId: `edit-${file}`, title: `Write ${file}`, kind: "edit", content: [{ type: "diff", path: at, newText: text }], locations: [{ path: at }] };
      const decided = await ask(call);
      if (decided === "once" || decided === "always") fs.writeFileSync(at, text);
      return say(`edit ${file}: ${decided}\n`);
    }
    case "update":
      return update(rest[0]);
    // Asks, and changes the call before it is answered.
    case "ask-and-change": {
      const asked = ask(rest[0]);
      await sleep(rest[2] ?? 0);
      await update({ sessionUpdate: "tool_call_update", toolCallId: rest[0].toolCallId, ...rest[1] });
      return say(`decided: ${await asked}\n`);
    }
    // Two requests with one id, past the SDK.
    case "ask-twice": {
      const [first, second] = rest;
      const answers = new Promise((resolve) => waiting.set(77, { answers: [], resolve, wanted: 2 }));
      for (const call of [first, second]) await line({ id: 77, method: "session/request_permission", params: permission(call) });
      const all = await answers;
      return say(`answers: ${JSON.stringify(all)}\n`);
    }
    case "elicit":
      try {
        return say(`elicited: ${JSON.stringify(await client.request(acp.methods.client.elicitation.create, { sessionId: session.id, ...rest[0] }))}\n`);
      } catch (error) {
        return say(`refused: ${error.code} ${error.message}\n`);
      }
    // Asks past the SDK, and takes it back.
    case "elicit-and-cancel": {
      const answers = new Promise((resolve) => waiting.set(88, { answers: [], resolve, wanted: 1 }));
      await line({ id: 88, method: "elicitation/create", params: { sessionId: session.id, ...rest[0] } });
      await sleep(rest[1] ?? 0);
      await line({ method: "$/cancel_request", params: { requestId: 88 } });
      return say(`answers: ${JSON.stringify(await answers)}\n`);
    }
    case "client":
      return say(`client: ${JSON.stringify(clientCapabilities)}\n`);
    // What the client said to the prompt beside session/cancel.
    case "await-cancel-request":
      await new Promise((resolve) => ctx.signal.addEventListener("abort", resolve));
      fs.writeFileSync(path.join(session.cwd, rest[0]), String(ctx.signal.reason?.code));
      return undefined;
    case "request":
      try {
        return say(`replied: ${JSON.stringify(await client.request(rest[0], rest[1]))}\n`);
      } catch (error) {
        return say(`refused: ${error.code}\n`);
      }
    case "raw":
      return raw(rest[0]);
    case "flood":
      return raw(`${"x".repeat(rest[0])}\n`);
    case "line":
      return line(rest[0]);
    // Answers the prompt itself, before the SDK does so again.
    case "reply":
      return line({ id: ctx.requestId, result: rest[0] });
    case "later":
      setTimeout(() => void line(rest[1]), rest[0]);
      return undefined;
    case "sleep":
      return sleep(rest[0]);
    case "await-file":
      while (!fs.existsSync(path.join(session.cwd, rest[0]))) await sleep(20);
      return undefined;
    case "child":
      spawn("sleep", ["3600"], { detached: true, stdio: "ignore" }).unref();
      return undefined;
    case "hang":
      return new Promise((resolve) => {
        const timer = setInterval(() => {
          if (!cancelled.has(session.id)) return;
          clearInterval(timer);
          resolve();
        }, 20);
      });
    case "exit":
      process.exit(rest[0]);
    case "crash":
      process.kill(process.pid, "SIGKILL");
      return new Promise(() => {});
    default:
      throw acp.RequestError.invalidParams({ what });
  }
}

/** Does what `adj agents test` tells it, as a model would. */
async function follow(session, client, text) {
  const word = (kind) => text.match(new RegExp(`${kind}-[0-9a-f]{8}`))?.[0];
  const tool = (name, input) => callTool(session.server, name, input);
  if (text.includes("Ready?")) {
    const [command] = text.split("\n").filter((line) => line.startsWith("setsid "));
    const toolCall = { toolCallId: "left", title: command, kind: "execute", rawInput: { command } };
    const { outcome } = await client.request(acp.methods.client.session.requestPermission, { sessionId: session.id, toolCall, options: OPTIONS });
    const isApproved = outcome.outcome === "selected" && outcome.optionId !== "no";
    if (isApproved && !flag("--no-shell")) spawn("sleep", ["3600"], { detached: true, stdio: "ignore" }).unref();
    await tool("ask_parent", { question: "Ready?" });
  } else if (session.first) {
    const summary = `${session.first} ${word("birch")}`;
    await tool("update_subagent_status", { status: "success", summary });
    await perform(session, client, ["say", summary]);
  } else {
    await tool("update_subagent_status", { status: "running", percent: 10, summary: "adjutant-test" });
    text = await tool("ask_parent", { question: "Which word?" });
    session.first = word("amber");
    keep(session);
    await tool("stop_work", { stop_reason: "blocker", details: "waits for the second word", state_snapshot: `the first word is ${session.first}` });
  }
}

const capabilities = {
  loadSession: flag("--load"),
  mcpCapabilities: { http: !flag("--stdio"), sse: false },
  sessionCapabilities: flag("--resume") ? { resume: {} } : {},
};
const offered = () => ({ modes: json("--modes"), configOptions: json("--options") });
const begin = (session, params) => {
  session.server = (params.mcpServers ?? []).find((server) => server.name === "adj");
  session.cwd = params.cwd;
  sessions.set(session.id, session);
  keep(session);
};

const app = acp
  .agent({ name: "acp-agent" })
  .onRequest(acp.methods.agent.initialize, async ({ params }) => {
    clientCapabilities = params.clientCapabilities;
    if (value("--mute") === "initialize") await new Promise(() => {});
    return {
      protocolVersion: flag("--version") ? Number(value("--version")) : 1,
      agentCapabilities: capabilities,
      agentInfo: { name: "acp-agent", title: "The test's agent", version: "1.2.3" },
      authMethods: [{ id: "login", name: "Log in", description: "run acp-agent login" }],
    };
  })
  .onRequest(acp.methods.agent.session.new, async ({ params }) => {
    if (value("--mute") === "session/new") await new Promise(() => {});
    if (flag("--auth")) throw acp.RequestError.authRequired();
    const session = { id: `s-${randomUUID()}`, turns: 0, then: [], mode: json("--modes")?.currentModeId };
    begin(session, params);
    return { sessionId: session.id, ...offered() };
  })
  .onRequest(acp.methods.agent.session.load, async ({ params, client }) => {
    const session = load(params.sessionId);
    begin(session, params);
    const text = "words of yesterday\n";
    await client.notify(acp.methods.client.session.update, { sessionId: session.id, update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text } } });
    return offered();
  })
  .onRequest(acp.methods.agent.session.resume, async ({ params }) => {
    begin(load(params.sessionId), params);
    return offered();
  })
  .onRequest(acp.methods.agent.session.setMode, async ({ params }) => {
    if (flag("--stubborn")) throw acp.RequestError.invalidParams({ mode: params.modeId });
    load(params.sessionId).mode = params.modeId;
    return {};
  })
  .onRequest(acp.methods.agent.session.setConfigOption, async ({ params }) => {
    const session = load(params.sessionId);
    session.options = { ...session.options, [params.configId]: params.value };
    const options = json("--options").map((option) => (option.id === params.configId && !flag("--stubborn") ? { ...option, currentValue: params.value } : option));
    return { configOptions: options };
  })
  .onNotification(acp.methods.agent.session.cancel, async ({ params }) => {
    cancelled.add(params.sessionId);
  })
  .onRequest(acp.methods.agent.session.prompt, async (ctx) => {
    const { params, client } = ctx;
    const session = load(params.sessionId);
    session.turns += 1;
    const text = params.prompt.map((block) => block.text ?? "").join("\n");
    if (flag("--follow")) {
      await follow(session, client, text);
      return { stopReason: cancelled.has(session.id) ? "cancelled" : "end_turn" };
    }
    const lines = (word) => text.split("\n").filter((line) => line.startsWith(`${word}: [`)).map((line) => JSON.parse(line.slice(word.length + 2)));
    const now = lines("do");
    const todo = now.length > 0 ? now : session.then;
    session.then = lines("then");
    keep(session);
    for (const step of todo) {
      if (cancelled.has(session.id)) return { stopReason: "cancelled" };
      await perform(session, client, step, ctx);
    }
    return { stopReason: cancelled.has(session.id) ? "cancelled" : "end_turn" };
  });

// Answers to what was asked past the SDK are taken before it sees them.
const input = new Readable({ read() {} });
readline.createInterface({ input: process.stdin }).on("line", (text) => {
  const message = JSON.parse(text);
  const asked = message.method === undefined ? waiting.get(message.id) : undefined;
  if (!asked) return void input.push(`${text}\n`);
  asked.answers.push(message.result?.outcome ?? message.result ?? message.error);
  if (asked.answers.length === asked.wanted) asked.resolve(asked.answers);
}).on("close", () => input.push(null));
const connection = app.connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(input)));
await connection.closed;
process.exit(0);
