// The main job, driven by a client built on the official TypeScript SDK, in every protocol version, through `adj mcp` and
// through the hub's `/mcp`.
//
//     main_job.mjs ADJ HOME PROJECT TOKEN_FILE
//
// Start a run, be asked, answer, wait for the end; then have the person asked by the client where it can. The home escalates
// questions at once. Ends with 0, or with what went wrong.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [adj, home, project, tokenFile] = process.argv.slice(2);
const { token, url } = JSON.parse(fs.readFileSync(tokenFile, 'utf8')).data;
const MODERN = '2026-07-28';
const VERSIONS = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25', MODERN, 'auto'];
const PATIENCE_MS = 60_000;

const transports = {
  stdio: () => new StdioClientTransport({ command: adj, args: ['mcp'], env: { ADJ_HOME: home, HOME: home, PATH: process.env.PATH }, cwd: project }),
  http: () => new StreamableHTTPClientTransport(new URL('/mcp', url), { requestInit: { headers: { authorization: `Bearer ${token}` } } }),
};

async function open(transport, version, capabilities) {
  const options = { capabilities };
  if (version === MODERN) options.versionNegotiation = { mode: { pin: MODERN } };
  else if (version === 'auto') options.versionNegotiation = { mode: 'auto' };
  else options.supportedProtocolVersions = [version];
  const client = new Client({ name: 'main-job', version: '1.0.0' }, options);
  if (capabilities.elicitation) {
    client.setRequestHandler('elicitation/create', (request) => {
      assert.match(request.params.message, /Which shade\?/);
      return { action: 'accept', content: { answer: 'dark' } };
    });
  }
  await client.connect(transports[transport]());
  assert.equal(client.getNegotiatedProtocolVersion(), version === 'auto' ? MODERN : version);
  return client;
}

/** Calls a tool that has to work. The SDK checks the result against the output schema. */
async function done(client, name, args) {
  const result = await client.callTool({ name, arguments: args }, { timeout: PATIENCE_MS });
  assert.ok(!result.isError, `${name}: ${JSON.stringify(result.content)}`);
  return result.structuredContent;
}

async function wait(client, run, cursor = undefined) {
  return done(client, 'wait_for_subagents', { run_ids: [run], wait_s: 30, ...(cursor ? { cursor } : {}) });
}

async function mainJob(transport, version) {
  const began = performance.now();
  const client = await open(transport, version, {});
  const { tools } = await client.listTools();
  assert.ok(tools.some((tool) => tool.name === 'run_subagent') && tools.every((tool) => tool.name !== 'ask_parent'));
  const agents = await done(client, 'list_coding_agents', {});
  assert.ok(JSON.stringify(agents).includes('echo'));
  const started = await done(client, 'run_subagent', { agent: 'echo', prompt: 'ask "Which colour?"\ndone', cwd: project });
  const asks = await wait(client, started.run_id);
  assert.equal(asks.needs.length, 1);
  await done(client, 'reply_subagent', { run_id: started.run_id, answer: 'red' });
  const ended = await wait(client, started.run_id, asks.cursor);
  assert.equal(ended.ended[0].name, started.name);
  const { contents } = await client.readResource({ uri: `log://${started.name}` });
  assert.match(contents[0].text, /answer: red/);
  await assert.rejects(client.callTool({ name: 'no_such_tool', arguments: {} }), /run_subagent|unknown tool/);
  await client.close();
  console.log(`main job, ${transport}, ${version}: ${Math.round(performance.now() - began)} ms`);
}

/** The client asks its person, who answers. */
async function elicitation(transport, version) {
  const client = await open(transport, version, { elicitation: { form: {} } });
  const started = await done(client, 'run_subagent', { agent: 'echo', prompt: 'ask "Which shade?"\ndone', cwd: project });
  const deadline = Date.now() + PATIENCE_MS;
  let last;
  do {
    assert.ok(Date.now() < deadline, `nobody answered: ${JSON.stringify(last)}`);
    // A question that is not escalated yet is returned.
    last = await wait(client, started.run_id);
  } while (!last.ended);
  const { contents } = await client.readResource({ uri: `log://${started.name}` });
  assert.match(contents[0].text, /answer: dark/);
  await client.close();
  console.log(`elicitation, ${transport}, ${version}`);
}

for (const transport of Object.keys(transports)) {
  for (const version of VERSIONS) {
    await mainJob(transport, version);
    if (version >= '2025-06-18') await elicitation(transport, version);
  }
}
