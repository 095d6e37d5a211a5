// bullmq.mjs work | one N | many N | paced RATE SECONDS
import { port, produce, require, stamping } from './node_common.mjs';
const { Queue, Worker } = require('bullmq');

const [mode] = process.argv.slice(2);
const connection = { host: '127.0.0.1', port, maxRetriesPerRequest: null };
const opts = { removeOnComplete: true, removeOnFail: true };
if (mode === 'work') {
  const stamp = stamping();
  const worker = new Worker('bench', async (job) => stamp(job.data), { connection, concurrency: 50 });
  worker.on('error', (fault) => console.error(fault));
} else {
  const queue = new Queue('bench', { connection });
  await queue.waitUntilReady();
  await produce(
    process.argv.slice(2),
    (data) => queue.add('job', data, opts),
    (payloads) => queue.addBulk(payloads.map((data) => ({ name: 'job', data, opts }))),
  );
  await queue.close();
}
