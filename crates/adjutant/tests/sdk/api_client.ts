// The main job over the HTTP API, by a client whose types are generated from the description that the hub serves (`api.d.ts`).
// `.ci/api-client` checks its types and runs it.
//
//     api_client.ts PROJECT TOKEN_FILE

import assert from 'node:assert/strict';
import fs from 'node:fs';
import createClient from 'openapi-fetch';
import type { components, paths } from './api.d.ts';

type Run = components['schemas']['RunView'];

const [project = '', tokenFile = ''] = process.argv.slice(2);
const { token, url } = JSON.parse(fs.readFileSync(tokenFile, 'utf8')).data as { token: string; url: string };
const api = createClient<paths>({ baseUrl: url, headers: { authorization: `Bearer ${token}` } });

/** Returns the data of a reply that has to be a success. */
function ok<T>(reply: { data?: T; error?: components['schemas']['Problem'] }): T {
  assert.equal(reply.error, undefined, JSON.stringify(reply.error));
  assert.ok(reply.data !== undefined);
  return reply.data;
}

const start = { agent: 'echo', prompt: 'ask "Which colour?" [options: red|green]\nwrite notes.txt Hello\nsay done', cwd: project };
const key = { header: { 'Idempotency-Key': 'main-job' } };
const run: Run = ok(await api.POST('/api/v1/dispatch', { params: key, body: start }));
const repeated: Run = ok(await api.POST('/api/v1/dispatch', { params: key, body: start }));
assert.equal(repeated.run_id, run.run_id, 'a repeated call starts no second run');

const asks = ok(await api.POST('/api/v1/wait', { body: { runs: [run.run_id], wait_ms: 60_000 } }));
const question = asks.needs[0];
assert.ok(question);
assert.deepEqual([question.question, question.options], ['Which colour?', ['red', 'green']]);
const answered = ok(await api.POST('/api/v1/answer', { body: { answers: [{ message_id: question.message_id, answer: 'green' }] } }));
assert.equal(answered.requests[0]?.answer, 'green');

const ended = ok(await api.POST('/api/v1/wait', { body: { runs: [run.run_id], until: 'all', wait_ms: 60_000 } }));
assert.equal(ended.ended[0]?.run_id, run.run_id);
const found: Run = ok(await api.POST('/api/v1/run', { body: { run: run.name } }));
assert.deepEqual([found.state, found.outcome], ['finished', 'succeeded']);
const log = ok(await api.POST('/api/v1/logs', { body: { run: run.run_id, after: 0 } }));
assert.match(log.text, /answer: green/);
const result = ok(await api.POST('/api/v1/result', { body: { run: run.run_id } }));
assert.ok(JSON.stringify(result).includes('done'));
const diff = ok(await api.POST('/api/v1/diff', { body: { run: run.run_id } }));
assert.ok(JSON.stringify(diff).includes('notes.txt'));

const late = await api.POST('/api/v1/answer', { body: { answers: [{ message_id: question.message_id, answer: 'red' }] } });
assert.deepEqual([late.response.status, late.error?.code], [409, 'already_answered']);
const unknown = await api.POST('/api/v1/run', { body: { run: 'nobody' } });
assert.deepEqual([unknown.response.status, unknown.error?.code], [404, 'not_found']);
console.log('the generated client did the main job');
