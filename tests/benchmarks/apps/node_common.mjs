// What the jobs and producers on Node share; see stamp.py and produce.py, whose formats these are.
import { createRequire } from 'module';
import fs from 'fs';

export const require = createRequire(process.env.BENCH_NODE_MODULES + '/of.js');
export const port = parseInt(process.env.BENCH_REDIS_PORT);
const now = () => process.hrtime.bigint();
const make = (number) =>
  ({ id: number, enq: Number(now()), kind: 'email.send', to: 'user@example.com', tpl: 'welcome-42', n: 7 });
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// Node cannot map a file: it writes some records together, at the latest after 10 ms.
export function stamping() {
  const worker = process.env.BENCH_WORKER || '0';
  const file = fs.openSync(`${process.env.BENCH_STAMPS}/${worker}-${process.pid}`, 'a');
  const records = Buffer.alloc(32 * 256);
  let end = 0;
  const flush = () => { if (end) { fs.writeSync(file, records, 0, end); end = 0; } };
  setInterval(flush, 10).unref();
  process.on('SIGTERM', () => { flush(); process.exit(0); });
  return (payload) => {
    records.writeBigInt64LE(now(), end);
    records.writeBigInt64LE(BigInt(payload.enq), end + 8);
    records.writeBigInt64LE(BigInt(payload.id), end + 16);
    records.writeBigInt64LE(BigInt(worker), end + 24);
    end += 32;
    if (end === records.length) flush();
  };
}

// one(payload) and many(payloads) enqueue.
export async function produce([mode, amount, seconds], one, many) {
  amount = parseFloat(amount);
  const tell = (told) => console.log(JSON.stringify({ seconds: 0, cpu_seconds: 0, ...told }));
  if (mode === 'paced') {
    for (let i = 0; i < 20; i++) { await one(make(-1 - i)); await sleep(10); }
    await sleep(1000);
    const jobs = Math.floor(amount * parseFloat(seconds));
    let due = performance.now();
    for (let i = 0; i < jobs; i++) {
      due += 1000 / amount;
      const pause = due - performance.now();
      if (pause > 0) await sleep(pause);
      await one(make(i));
    }
    tell({ jobs, before: 20 });
    return;
  }
  const cpu = () => { const used = process.cpuUsage(); return (used.user + used.system) / 1e6; };
  for (let i = 0; i < 100; i++) await one(make(i));
  const wall = performance.now(), before = cpu();
  if (mode === 'one') for (let i = 0; i < amount; i++) await one(make(100 + i));
  else for (let i = 0; i < amount; i += 500) {
    const payloads = [];
    for (let k = i; k < Math.min(amount, i + 500); k++) payloads.push(make(100 + k));
    await many(payloads);
  }
  tell({ jobs: amount, before: 100, seconds: (performance.now() - wall) / 1000, cpu_seconds: cpu() - before });
}
