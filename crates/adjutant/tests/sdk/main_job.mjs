// The main job, driven by a client built on the official TypeScript SDK, in every protocol version, through `adj mcp` and
// through the hub's `/mcp`.
//
//     main_job.mjs ADJ HOME PROJECT TOKEN_FILE
//
// Start a run, be asked, answer, wait for the end; then have the person asked by the client where it can, also during a Task, which
// the official package for Tasks follows; then outlive the hub. The home escalates questions at once. Ends with 0, or with what
// went wrong.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import { promisify } from 'node:util';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { createApplicationInputHandler, createTaskSessionFromClient, resultFromTaskOutcome } from '@modelcontextprotocol/ext-tasks/client';

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
  let ended = await wait(client, started.run_id, asks.cursor);
  // The run's report also ends a wait, if the hub has it before the end.
  for (let reports = 0; !ended.ended && reports < 2; reports += 1) ended = await wait(client, started.run_id, ended.cursor);
  assert.equal(ended.ended?.[0].name, started.name, JSON.stringify(ended));
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

/** Sends a request of the package for Tasks, which the client does not send itself. */
async function dispatch(request) {
  const { method, params } = request;
  const name = params.name ?? params.taskId;
  const reply = await fetch(new URL('/mcp', url), {
    method: 'POST',
    headers: {
      accept: 'application/json, text/event-stream',
      authorization: `Bearer ${token}`,
      'content-type': 'application/json',
      'mcp-method': method,
      'mcp-protocol-version': MODERN,
      ...(name ? { 'mcp-name': name } : {}),
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: crypto.randomUUID(), ...request }),
  });
  const text = await reply.text();
  const { result, error } = JSON.parse(text.match(/^data: (.*)$/m)?.[1] ?? text);
  return error ? { kind: 'error', error } : { kind: 'result', result };
}

/** The client asks its person during a Task. Returns whether it did: a question that is not escalated yet ends the Task. */
async function taskInput() {
  const capabilities = { elicitation: { form: {} }, extensions: { 'io.modelcontextprotocol/tasks': {} } };
  const client = await open('http', MODERN, {});
  const asked = [];
  let setAsked;
  const wasAsked = new Promise((resolve) => (setAsked = resolve));
  const session = createTaskSessionFromClient(client, {
    endpointId: 'hub',
    rawDispatch: dispatch,
    v2RequestFraming: { protocolVersion: MODERN, clientInfo: { name: 'main-job', version: '1.0.0' }, clientCapabilities: capabilities },
    onInputRequest: createApplicationInputHandler({
      elicitation: ({ params }, { delivery }) => {
        assert.match(params.message, /Which shade\?/);
        asked.push(delivery);
        setAsked();
        return { action: 'accept', content: { answer: 'dark' } };
      },
      sampling: () => assert.fail('nothing is sampled'),
      roots: () => assert.fail('no roots are asked for'),
    }),
  });
  const hanging = await done(client, 'run_subagent', { agent: 'echo', prompt: 'hang', cwd: project });
  const execution = await session.callTool('wait_for_subagents', { until: 'all' });
  const asking = await done(client, 'run_subagent', { agent: 'echo', prompt: 'ask "Which shade?"\ndone', cwd: project });
  const settled = execution.settle();
  await Promise.race([wasAsked, settled]);
  await done(client, 'steer_subagent', { run_id: hanging.run_id, action: 'cancel' });
  const { structuredContent } = resultFromTaskOutcome((await settled).outcome);
  const isAsked = asked.length > 0;
  if (isAsked) {
    assert.deepEqual(asked, ['task-update']);
    assert.ok(structuredContent.ended.length >= 2, JSON.stringify(structuredContent));
    const { contents } = await client.readResource({ uri: `log://${asking.name}` });
    assert.match(contents[0].text, /answer: dark/);
  }
  await session.close();
  await client.close();
  return isAsked;
}

/** A session ends with the hub; a client that begins again as the protocol says goes on. */
async function outliveHub(version) {
  const client = await open('http', version, {});
  await done(client, 'list_coding_agents', {});
  for (const command of ['stop', 'ps']) {
    // Not blocking, so that the client notices that its connection is closed.
    await promisify(execFile)(adj, [command], { env: { ADJ_HOME: home, HOME: home } });
  }
  // 404: the session is unknown, and the client has to start a new one.
  await assert.rejects(done(client, 'list_coding_agents', {}), (error) => error.status === 404 || /404|[Ss]ession/.test(String(error)));
  const again = await open('http', version, {});
  await done(again, 'list_coding_agents', {});
  await again.close();
  console.log(`a new hub, http, ${version}`);
}

for (const transport of Object.keys(transports)) {
  for (const version of VERSIONS) {
    await mainJob(transport, version);
    if (version >= '2025-06-18') await elicitation(transport, version);
  }
}
const deadline = Date.now() + PATIENCE_MS;
while (!(await taskInput())) assert.ok(Date.now() < deadline, 'the person was never asked');
console.log('elicitation during a Task, http');
await outliveHub('2025-06-18');
