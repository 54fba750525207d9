// What tests/interop asks of every client, with connect-es: connect.mjs URL PROTOCOL HTTP CODEC. One line of JSON with what was seen.
// PROTOCOL: connect, grpc, grpcweb. HTTP: 1.1, 2. CODEC: json, binary. Stubs are beside it, made by protoc-gen-es.
import fs from 'node:fs';
import { Code, ConnectError, createClient } from '@connectrpc/connect';
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from '@connectrpc/connect-node';
import { BadRequestSchema, ErrorInfoSchema } from './gen/google/rpc/error_details_pb.js';
import { TaskEvent_Kind, TaskService } from './gen/reins/v1/task_service_pb.js';
import { Task_State, TaskView } from './gen/reins/v1/task_pb.js';

const [baseUrl, protocol, httpVersion, codec] = process.argv.slice(2);
const file = (name) => (process.env[name] ? fs.readFileSync(process.env[name]) : undefined);
const nodeOptions = { ca: file('REINS_TLS_CA'), cert: file('REINS_TLS_CERT'), key: file('REINS_TLS_KEY') };
const make = { connect: createConnectTransport, grpc: createGrpcTransport, grpcweb: createGrpcWebTransport }[protocol];
const client = createClient(TaskService, make({ baseUrl, httpVersion, nodeOptions, useBinaryFormat: codec === 'binary' }));

const hex = (bytes) => Buffer.from(bytes).toString('hex');
const longest = { timeoutMs: 30000 };
const queue = `connect-${protocol}-${httpVersion}-${codec}-${process.env.INTEROP_WAY ?? 'direct'}`;
const bytes = Uint8Array.from([0, 255, 128, 10]);

async function failure(call) {
  try {
    await call();
  } catch (error) {
    return ConnectError.from(error);
  }
  throw new Error('it was to fail');
}

const seen = {};
const spec = {
  command: ['sh', '-c', 'printf "\\000log\\377"; cat >"$REINS_RESULT"'], queue, payload: bytes, labels: { from: 'connect' }, params: { ä: '€' },
};
const untilSync = new AbortController();
let before;
await failure(async () => {
  for await (const event of client.watchTasks({}, { signal: untilSync.signal })) {
    before = event.cursor;
    untilSync.abort();
  }
});
const first = await client.submitTask({ spec, idempotencyKey: queue }, longest);
seen.created = first.created;
seen.again = (await client.submitTask({ spec, idempotencyKey: queue }, longest)).created;
seen.id = first.task.id;
const done = await client.getTask({ taskId: seen.id, wait: { seconds: 30n } }, longest);
seen.state = Task_State[done.state];
seen.result = hex(done.result);
seen.payload = hex(done.spec.payload);
seen.listed = (await client.listTasks({ filter: { queue } }, longest)).tasks.map((t) => t.id);

seen.watched = [];
const untilEnd = new AbortController();
const kinds = [TaskEvent_Kind.CREATED, TaskEvent_Kind.CHANGED];
seen.watch_cancelled = (await failure(async () => {
  for await (const event of client.watchTasks({ cursor: before, filter: { queue }, kinds }, { signal: untilEnd.signal })) {
    if (event.kind !== TaskEvent_Kind.SYNC) seen.watched.push(`${event.task.id} ${TaskEvent_Kind[event.kind]} ${Task_State[event.state]}`);
    if (event.state === Task_State.COMPLETED) untilEnd.abort();
  }
})).code;

const log = [];
for await (const chunk of client.readLogs({ taskId: seen.id, follow: true }, longest)) log.push(chunk.data);
seen.log = hex(Buffer.concat(log));

const bad = await failure(() => client.submitTask({ spec: { command: ['x'], priority: 5000 } }, longest));
seen.code = bad.code;
seen.message = bad.rawMessage;
seen.field = bad.findDetails(BadRequestSchema)[0]?.fieldViolations[0]?.field;
seen.reason = bad.findDetails(ErrorInfoSchema)[0]?.domain ?? null;
seen.not_found = (await failure(() => client.getTask({ taskId: '01890a5d-ac96-774b-bcce-b302099a8057' }, longest))).code;
seen.stream_not_found = (await failure(async () => {
  for await (const chunk of client.readLogs({ taskId: '01890a5d-ac96-774b-bcce-b302099a8057' }, longest)) void chunk;
})).code;

const running = (await client.submitTask({ spec: { command: ['sh', '-c', 'echo here; sleep 300'], queue } }, longest)).task.id;
seen.deadline = (await failure(() => client.getTask({ taskId: running, wait: { seconds: 60n } }, { timeoutMs: 300 }))).code;
const abort = new AbortController();
seen.cancelled = (await failure(async () => {
  for await (const chunk of client.readLogs({ taskId: running, follow: true }, { signal: abort.signal })) {
    seen.followed = hex(chunk.data);
    abort.abort();
  }
})).code;
await client.cancelTask({ taskId: running }, longest);
seen.stopped = Task_State[(await client.getTask({ taskId: running, wait: { seconds: 30n } }, longest)).state];

// Not through nghttpx over HTTP/1.1: it closes a connection whose request was answered early, and Node takes it for the next call.
seen.too_large = process.env.NO_EARLY_ANSWER ? Code.ResourceExhausted : (await failure(() => client.submitTask({ spec: { command: ['x'], payload: new Uint8Array(5 << 20) } }, longest))).code;
// Pages end before the 4 MiB that clients take, however large the tasks are.
for (let i = 0; i < 5; i++) {
  await client.submitTask({
    spec: { command: ['true'], queue: `${queue}-large`, payload: new Uint8Array(1 << 20), runAt: { seconds: 4000000000n } },
  }, longest);
}
seen.large = 0;
for (let pageToken = ''; ;) {
  const page = await client.listTasks({ filter: { queue: `${queue}-large` }, view: TaskView.FULL, pageToken }, longest);
  seen.large += page.tasks.length;
  for (const task of page.tasks) await client.cancelTask({ taskId: task.id }, longest);
  pageToken = page.nextPageToken;
  if (!pageToken) break;
}
console.log(JSON.stringify(seen));
process.exit(0);
