// Submits, waits, watches, reads logs, lists and cancels, with grpc-js and the .proto files as they are.
//
//   node client.js submit PROGRAM [ARGUMENT...]   prints the task's id
//   node client.js wait ID                        prints the state; exit code 0 if it is COMPLETED, else 1
//   node client.js watch PROGRAM [ARGUMENT...]    submits, and prints what happens to the task until it has ended; exit code as of wait
//   node client.js logs ID                        what the program prints, until it has ended
//   node client.js list [QUEUE]                   id, state and name, the newest first
//   node client.js cancel ID
//
// REINS_SERVER   127.0.0.1:7346 (the default), or https://HOST:PORT for TLS
// REINS_TOKEN    sent with each call; the server may ask for one
// REINS_TLS_CA   the authority that signed the server's certificate; REINS_TLS_CERT, REINS_TLS_KEY: a certificate of our own
// REINS_PROTO    folder of the .proto files, default: that of this repository
// REINS_QUEUE    the queue that submit puts tasks into
'use strict';

const crypto = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const protos = process.env.REINS_PROTO || path.join(__dirname, '../../../proto');
// int64 as strings, since numbers of JavaScript end at 2^53; enums by their names.
const definition = loader.loadSync('reins/v1/task_service.proto', {
  keepCase: true, longs: String, enums: String, defaults: true, oneofs: true, includeDirs: [protos],
});
const { reins } = grpc.loadPackageDefinition(definition);

// Calls that ended with UNAVAILABLE are made again: the server or its store was away. A submit that is made again needs
// an idempotency key, or there may be two tasks.
const retry = {
  methodConfig: [{
    name: [{ service: 'reins.v1.TaskService' }],
    retryPolicy: {
      maxAttempts: 5, initialBackoff: '0.1s', maxBackoff: '2s', backoffMultiplier: 2, retryableStatusCodes: ['UNAVAILABLE'],
    },
  }],
};

function file(variable) {
  return process.env[variable] ? fs.readFileSync(process.env[variable]) : null;
}

function connect() {
  const [, scheme, address] = /^(?:(https?):\/\/)?(.*?)\/?$/.exec(process.env.REINS_SERVER || '127.0.0.1:7346');
  const credentials = scheme === 'https'
    ? grpc.credentials.createSsl(file('REINS_TLS_CA'), file('REINS_TLS_KEY'), file('REINS_TLS_CERT'))
    : grpc.credentials.createInsecure();
  return new reins.v1.TaskService(address, credentials, {
    'grpc.service_config': JSON.stringify(retry),
    // Notice a server that is gone without a word, also while a log is followed and nothing is said.
    'grpc.keepalive_time_ms': 30000,
    'grpc.keepalive_timeout_ms': 20000,
  });
}

const client = connect();
const metadata = new grpc.Metadata();
if (process.env.REINS_TOKEN) metadata.set('authorization', `Bearer ${process.env.REINS_TOKEN}`);

function call(method, request, seconds = 10) {
  return new Promise((resolve, reject) => {
    client[method](request, metadata, { deadline: Date.now() + seconds * 1000 },
      (error, reply) => (error ? reject(error) : resolve(reply)));
  });
}

async function submit(command) {
  const request = { spec: { command, queue: process.env.REINS_QUEUE || '' }, idempotency_key: crypto.randomUUID() };
  return (await call('SubmitTask', request)).task;
}

// The task once it has ended. Each call waits half a minute, so that a server which is restarted costs little.
async function wait(taskId) {
  for (;;) {
    const task = await call('GetTask', { task_id: taskId, wait: { seconds: 30 } }, 60);
    if (['COMPLETED', 'FAILED', 'CANCELLED'].includes(task.state)) return task;
  }
}

// What happens to the tasks that match, from a cursor on; without one from now on. The first event is SYNC. Who keeps the
// cursor of the last event can go on from there, and misses nothing.
async function* watch(cursor, filter) {
  for (;;) {
    const stream = client.WatchTasks({ cursor, filter }, metadata);
    stream.on('error', () => {}); // after we have cancelled it
    try {
      for await (const event of stream) {
        cursor = event.cursor;
        yield event;
      }
    } catch (error) {
      // The server has gone, or we were too slow for it.
      if (!cursor || ![grpc.status.UNAVAILABLE, grpc.status.RESOURCE_EXHAUSTED].includes(error.code)) throw error;
    } finally {
      stream.cancel();
    }
    await new Promise((resolve) => { setTimeout(resolve, 500); });
  }
}

async function submitAndWatch(command) {
  const before = (await watch('', {}).next()).value.cursor; // so nothing of the task is missed, however soon it ends
  const task = await submit(command);
  for await (const event of watch(before, { task_ids: [task.id] })) {
    if (event.kind !== 'SYNC') console.log(event.kind, event.state);
    if (['COMPLETED', 'FAILED', 'CANCELLED'].includes(event.state)) return event.state;
  }
}

// Piece by piece; what was not kept is a piece without data and with dropped_bytes.
async function logs(taskId) {
  for await (const chunk of client.ReadLogs({ task_id: taskId, follow: true }, metadata)) process.stdout.write(chunk.data);
}

// All tasks, page by page.
async function* list(queue) {
  for (let token = ''; ;) {
    const page = await call('ListTasks', { filter: { queue: queue || '' }, page_size: 100, page_token: token });
    yield* page.tasks;
    token = page.next_page_token;
    if (!token) return;
  }
}

async function main([verb, ...rest]) {
  if (verb === 'submit' && rest.length) {
    console.log((await submit(rest)).id);
  } else if (verb === 'wait' && rest.length === 1) {
    const task = await wait(rest[0]);
    console.log(task.state);
    return task.state === 'COMPLETED' ? 0 : 1;
  } else if (verb === 'watch' && rest.length) {
    return (await submitAndWatch(rest)) === 'COMPLETED' ? 0 : 1;
  } else if (verb === 'logs' && rest.length === 1) {
    await logs(rest[0]);
  } else if (verb === 'list' && rest.length <= 1) {
    for await (const task of list(rest[0])) console.log(task.id, task.state, task.spec.name);
  } else if (verb === 'cancel' && rest.length === 1) {
    console.log((await call('CancelTask', { task_id: rest[0], reason: 'by client.js' })).state);
  } else {
    console.error('usage: client.js submit PROGRAM... | wait ID | watch PROGRAM... | logs ID | list [QUEUE] | cancel ID');
    return 64;
  }
  return 0;
}

main(process.argv.slice(2)).then((code) => {
  client.close();
  process.exitCode = code;
}, (error) => {
  // The message names the field and what is allowed, if a field was at fault.
  console.error(error.details ? `${grpc.status[error.code]}: ${error.details}` : error);
  client.close();
  process.exitCode = 1;
});
