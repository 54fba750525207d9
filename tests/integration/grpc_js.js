// Submits, waits, lists, reads an error's details and a log, with grpc-js and the .proto files as they are.
// Usage: grpc_js.js ADDRESS PROTO_DIR. Prints one line of JSON with what it saw.
'use strict';

const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const [address, protos] = process.argv.slice(2);
const options = { keepCase: true, longs: String, enums: String, bytes: Buffer, defaults: true, oneofs: true, includeDirs: [protos] };
const files = ['reins/v1/task_service.proto', 'google/rpc/status.proto', 'google/rpc/error_details.proto'];
const definition = loader.loadSync(files, options);
const { reins } = grpc.loadPackageDefinition(definition);
const client = new reins.v1.TaskService(address, grpc.credentials.createInsecure());

function call(method, request) {
  const deadline = Date.now() + 30000;
  return new Promise((resolve, reject) => {
    client[method](request, { deadline }, (error, reply) => (error ? reject(error) : resolve(reply)));
  });
}

function details(error) {
  const [raw] = error.metadata.get('grpc-status-details-bin');
  return { present: Buffer.isBuffer(raw), bad_request: raw.includes('google.rpc.BadRequest'), field: raw.includes('spec.priority') };
}

async function main() {
  const seen = {};
  const payload = Buffer.from([0, 255, 128, 10]);
  const { task, created } = await call('SubmitTask', {
    spec: { command: ['/bin/true'], queue: 'js', payload, labels: { from: 'grpc-js' } }, idempotency_key: 'js-1',
  });
  seen.created = created;
  seen.id = task.id;
  seen.again = (await call('SubmitTask', {
    spec: { command: ['/bin/true'], queue: 'js', payload, labels: { from: 'grpc-js' } }, idempotency_key: 'js-1',
  })).created;
  const done = await call('GetTask', { task_id: task.id, wait: { seconds: 30 } });
  seen.state = done.state;
  seen.result = done.result.toString('hex');
  seen.payload = done.spec.payload.toString('hex');
  seen.attempts = done.attempts.map((a) => a.end);
  const listed = await call('ListTasks', { filter: { queue: 'js', states: ['COMPLETED'] } });
  seen.listed = listed.tasks.map((t) => t.id);
  try {
    await call('SubmitTask', { spec: { command: ['x'], priority: 5000 } });
  } catch (error) {
    seen.code = error.code;
    seen.message = error.details;
    seen.details = details(error);
  }
  try {
    await call('GetTask', { task_id: '01890a5d-ac96-774b-bcce-b302099a8057' });
  } catch (error) {
    seen.not_found = error.code;
  }
  seen.many = (await Promise.all(Array.from({ length: 200 }, (_, i) => call('SubmitTask', {
    spec: { command: ['/bin/true'], queue: 'js-many', name: `n${i}` },
  })))).length;
  seen.log = await new Promise((resolve, reject) => {
    const parts = [];
    const stream = client.ReadLogs({ task_id: task.id, follow: true }, { deadline: Date.now() + 30000 });
    stream.on('data', (chunk) => parts.push(chunk.data));
    stream.on('end', () => resolve(Buffer.concat(parts).toString('hex')));
    stream.on('error', reject);
  });
  client.close();
  console.log(JSON.stringify(seen));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
