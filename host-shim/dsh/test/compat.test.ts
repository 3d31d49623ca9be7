/** What the plugin says of a harness that is not as it expects. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { loginRejection } from '../src/compat/login.ts';
import { NEEDS, cancelled, childRoute, denied, isFinal, olderThan, ownEvents, tooOld } from '../src/compat/harness.ts';

suite('versions', () => {
  test('they are ordered as semantic versions are', () => {
    const order = ['0.0.9', '0.1.0-alpha', '0.1.0-rc.6', '0.1.0-rc.8', '0.1.0-rc.10', '0.1.0', '0.1.5-rc.2', '0.2.1-rc.2', '22.9.0', '22.19.0', '24.0.0'];
    order.forEach((a, x) => order.forEach((b, y) => assert.equal(olderThan(a, b), x < y, `${a} older than ${b}`)));
    assert.equal(olderThan('22.19.0+build', '22.19.0'), false);
  });

  test('a Node that is too old is named with the version needed', () => {
    assert.match(tooOld('20.20.2', undefined) ?? '', /Node 20\.20\.2.*22\.19\.0/u);
  });

  test('a dsh that is too old is named with the version needed', () => {
    assert.match(tooOld(NEEDS.node, '0.1.0-rc.6') ?? '', /dsh 0\.1\.0-rc\.6.*0\.1\.0-rc\.8/u);
  });

  test('what is new enough, or does not tell its version, is taken', () => {
    for (const dsh of [NEEDS.dsh, '0.1.0', '0.2.1-rc.2', undefined]) assert.equal(tooOld(NEEDS.node, dsh), undefined);
    assert.equal(tooOld(), undefined, 'this very Node');
  });
});

suite('a child\'s route', () => {
  const options = { provider: 'p', model: 'm', maxTokens: 5 };
  const of = (agent: unknown, asked: unknown = {}): unknown => childRoute({ agent, arguments: asked } as never);

  test('is its parent\'s own where subagents start no activations, and unknown without one', () => {
    const ctx = { get: () => ({}) };
    assert.deepEqual(of({ ctx, options }, { provider: 'q', model: 'n' }), { provider: 'p', model: 'm' });
    for (const own of [{}, { provider: 'p' }, { model: 'm' }]) assert.equal(of({ ctx, options: own }), undefined);
    assert.equal(of(undefined), undefined);
  });

  test('is what the tool call names, else what its parent called last, else its parent\'s own where they do', () => {
    const ctx = { get: () => ({ startActivation: () => undefined }) };
    const called = (config?: object): object => ({ ctx, options, session: { requestHeader: () => config && { config } } });
    const last = { provider: 'last', model: 'm' };
    assert.deepEqual(of(called(last), { provider: 'q', model: 'n' }), { provider: 'q', model: 'n' });
    for (const asked of [{ provider: 'q' }, { model: 'n' }, { provider: '', model: 'n' }, undefined]) assert.deepEqual(of(called(last), asked), last);
    assert.deepEqual(of(called()), { provider: 'p', model: 'm' });
  });
});

suite('the login', () => {
  const of = (service: unknown): unknown => loginRejection({ get: () => service } as never, {} as never);

  test('is none where the harness has none, and no is the answer when its service is gone', () => {
    assert.equal(of({}), undefined);
    for (const gone of [undefined, null]) assert.equal(of(gone), 401);
  });
});

suite('decisions about a tool call', () => {
  test('a denial says its code twice: as such, and to those who read the reason only', () => {
    assert.deepEqual(denied({ code: 'GEN_CAPACITY_EXCEEDED', message: 'box/m is full' }), {
      kind: 'deny',
      reason: 'GEN_CAPACITY_EXCEEDED: box/m is full',
      info: { name: 'GenLimitError', code: 'GEN_CAPACITY_EXCEEDED' },
    });
  });

  test('denials and cancellations are final, permissions and questions are not', () => {
    assert.ok(isFinal(denied({ code: 'C', message: 'no' })) && isFinal(cancelled('shut down')));
    assert.ok(!isFinal({ kind: 'allow' }) && !isFinal({ kind: 'ask' }));
  });
});

suite('what has happened in a session itself', () => {
  const events = ['inherited', 'own'].map((type) => ({ type }));

  test('begins after its seed, in whichever way the harness tells', () => {
    assert.deepEqual(ownEvents({ events, header: { seedLength: 1 } } as never), [{ type: 'own' }]);
    assert.deepEqual(ownEvents({ events, header: {} } as never), events);
    assert.deepEqual(ownEvents({ ownEvents: () => [{ type: 'own' }] } as never), [{ type: 'own' }]);
  });
});
