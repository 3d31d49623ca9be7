/**
 * What becomes of requests in a process that has a proxy in its environment; run by the test of the same, with the proxy in
 * `HTTP_PROXY`. Two origins, both behind it, and one of them a patient provider's; says how the requests ended.
 */
import { ENDLESS_MS, LONG_MS, PATIENT_MS, Wired, dispatchers, hasten, listened, silences } from './transport-support.ts';
import { until } from './support.ts';

await hasten();
const found = dispatchers();
const world = await Wired.with({ box: { streamIdleTimeoutMs: PATIENT_MS, baseURL: 'http://model.test/v1' } });
const [own, elsewhere] = await world.inside('box', () =>
  Promise.all([silences('http://model.test', LONG_MS), silences('http://other.test', ENDLESS_MS)]));
const outside = await silences('http://model.test', LONG_MS);
await world.remove();
await until(() => !listened());
const without = await silences('http://model.test', ENDLESS_MS);
const kept = dispatchers().every((dispatcher, index) => dispatcher === found[index]);
await world.end();
console.log(JSON.stringify({ own, elsewhere, outside, without, kept, kind: found[0]?.constructor.name }));
