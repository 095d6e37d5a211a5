// bee_queue.mjs work | one N | many N | paced RATE SECONDS
import { port, produce, require, stamping } from './node_common.mjs';
const Queue = require('bee-queue');

const [mode] = process.argv.slice(2);
const queue = new Queue('bench', {
  redis: { host: '127.0.0.1', port }, isWorker: mode === 'work', getEvents: false, sendEvents: false,
  storeJobs: false, removeOnSuccess: true, removeOnFailure: true, activateDelayedJobs: false,
});
if (mode === 'work') {
  const stamp = stamping();
  queue.checkStalledJobs(5000, () => {});
  queue.process(50, async (job) => stamp(job.data));
} else {
  await queue.ready();
  await produce(
    process.argv.slice(2),
    (payload) => queue.createJob(payload).save(),
    (payloads) => queue.saveAll(payloads.map((payload) => queue.createJob(payload))),
  );
  await queue.close();
}
