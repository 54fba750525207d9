// What tests/interop asks of every client, with grpc-js: grpc_js.cjs PROTO_DIR NAME. One line of JSON with what was seen.
'use strict';

const fs = require('node:fs');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const [protos, name] = process.argv.slice(2);
const definition = loader.loadSync('reins/v1/task_service.proto', {
  keepCase: true, longs: String, enums: String, bytes: Buffer, defaults: true, oneofs: true, includeDirs: [protos],
});
const { reins } = grpc.loadPackageDefinition(definition);
const url = process.env.REINS_SERVER;
const file = (variable) => fs.readFileSync(process.env[variable]);
const credentials = url.startsWith('https://')
  ? grpc.credentials.createSsl(file('REINS_TLS_CA'), file('REINS_TLS_KEY'), file('REINS_TLS_CERT')) : grpc.credentials.createInsecure();
const client = new reins.v1.TaskService(url.replace('https://', ''), credentials);
const queue = `grpc-js-${name}`;
const nobody = '01890a5d-ac96-774b-bcce-b302099a8057';

function call(method, request, ms = 60000) {
  return new Promise((resolve, reject) => {
    client[method](request, { deadline: Date.now() + ms }, (error, reply) => (error ? reject(error) : resolve(reply)));
  });
}

const failure = (promise) => promise.then(() => { throw new Error('it was to fail'); }, (error) => error);

// grpc-js leaves details as bytes, and proto-loader makes no types for messages outside a service: looked for, not decoded.
function field(error) {
  const [raw] = error.metadata.get('grpc-status-details-bin');
  return raw.includes('google.rpc.BadRequest') && raw.includes('spec.priority') ? 'spec.priority' : null;
}

async function logs(taskId) {
  const parts = [];
  for await (const chunk of client.ReadLogs({ task_id: taskId, follow: true }, { deadline: Date.now() + 30000 })) parts.push(chunk.data);
  return Buffer.concat(parts).toString('hex');
}

// The states of events until `until` says that it is enough, and how the stream then ended.
async function watch(request, until) {
  const stream = client.WatchTasks(request);
  const events = [];
  const end = await failure((async () => {
    for await (const event of stream) {
      events.push(event);
      if (until(event)) stream.cancel();
    }
  })());
  return { events, code: end.code };
}

async function main() {
  const seen = {};
  const { events: [sync] } = await watch({}, () => true);
  const spec = {
    command: ['sh', '-c', 'printf "\\000log\\377"; cat >"$REINS_RESULT"'], queue, payload: Buffer.from([0, 255, 128, 10]),
    labels: { from: 'grpc-js' }, params: { ä: '€' },
  };
  const first = await call('SubmitTask', { spec, idempotency_key: queue });
  seen.id = first.task.id;
  seen.created = first.created;
  seen.again = (await call('SubmitTask', { spec, idempotency_key: queue })).created;
  const done = await call('GetTask', { task_id: seen.id, wait: { seconds: 30 } });
  seen.state = done.state;
  seen.result = done.result.toString('hex');
  seen.payload = done.spec.payload.toString('hex');
  seen.listed = (await call('ListTasks', { filter: { queue } })).tasks.map((t) => t.id);
  const request = { cursor: sync.cursor, filter: { queue }, kinds: ['CREATED', 'CHANGED'] };
  const { events, code } = await watch(request, (event) => event.state === 'COMPLETED');
  seen.watched = events.filter((e) => e.kind !== 'SYNC').map((e) => `${e.task.id} ${e.kind} ${e.state}`);
  seen.watch_cancelled = code;
  seen.log = await logs(seen.id);

  const bad = await failure(call('SubmitTask', { spec: { command: ['x'], priority: 5000 } }));
  seen.code = bad.code;
  seen.message = bad.details;
  seen.field = field(bad);
  seen.not_found = (await failure(call('GetTask', { task_id: nobody }))).code;
  seen.stream_not_found = (await failure(logs(nobody))).code;

  const running = (await call('SubmitTask', { spec: { command: ['sh', '-c', 'echo here; sleep 300'], queue } })).task.id;
  seen.deadline = (await failure(call('GetTask', { task_id: running, wait: { seconds: 60 } }, 300))).code;
  const stream = client.ReadLogs({ task_id: running, follow: true });
  seen.cancelled = (await failure((async () => {
    for await (const chunk of stream) {
      seen.followed = chunk.data.toString('hex');
      stream.cancel();
    }
  })())).code;
  await call('CancelTask', { task_id: running });
  seen.stopped = (await call('GetTask', { task_id: running, wait: { seconds: 30 } })).state;

  seen.too_large = (await failure(call('SubmitTask', { spec: { command: ['x'], payload: Buffer.alloc(5 << 20) } }))).code;
  for (let i = 0; i < 5; i++) {
    await call('SubmitTask', {
      spec: { command: ['true'], queue: `${queue}-large`, payload: Buffer.alloc(1 << 20), run_at: { seconds: 4000000000 } },
    });
  }
  seen.large = 0;
  for (let token = ''; ;) {
    const page = await call('ListTasks', { filter: { queue: `${queue}-large` }, view: 'TASK_VIEW_FULL', page_token: token });
    seen.large += page.tasks.length;
    for (const task of page.tasks) await call('CancelTask', { task_id: task.id });
    token = page.next_page_token;
    if (!token) break;
  }
  client.close();
  console.log(JSON.stringify(seen));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
