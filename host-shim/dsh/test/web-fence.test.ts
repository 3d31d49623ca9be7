/** Who may ask: a table. The first refusal that applies is the one that is given. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { fence, type Facts } from '../src/fence.ts';

type Login = 401 | 403 | undefined;

interface Case {
  readonly peer?: string | undefined;
  readonly encrypted?: boolean;
  readonly headers?: Readonly<Record<string, readonly string[]>>;
  readonly login?: Login;
}

const TOKEN = 'the-token';
const LOCAL: Facts = { peer: '127.0.0.1', encrypted: false, headers: { host: ['localhost:3080'] } };

/** The status that a request with these differences from a plain local one is refused with. */
function status({ headers = {}, login, ...rest }: Case): number | undefined {
  const facts = { ...LOCAL, ...rest, headers: { ...LOCAL.headers, ...headers } };
  return fence(facts, { isToken: (token) => token === TOKEN, login: () => login })?.status;
}

function table(name: string, cases: Readonly<Record<string, readonly [Case, number | undefined]>>): void {
  describe(name, () => {
    for (const [what, [given, expected]] of Object.entries(cases)) {
      test(`${what} ${expected === undefined ? 'passes' : `is refused with ${expected}`}`, () => assert.equal(status(given), expected));
    }
  });
}

const peer = (address: string | undefined): Case => ({ peer: address });
const host = (...values: string[]): Case => ({ headers: { host: values } });
const site = (...values: string[]): Case => ({ headers: { 'sec-fetch-site': values } });
const origin = (value: string, own = 'localhost:3080', encrypted = false): Case => ({ encrypted, headers: { host: [own], origin: [value] } });
const bearer = (value: string, more: Case = {}): Case => ({ ...more, headers: { ...more.headers, authorization: [value] } });

table('the peer', {
  '127.0.0.1': [peer('127.0.0.1'), undefined],
  '127.8.9.10': [peer('127.8.9.10'), undefined],
  '::1': [peer('::1'), undefined],
  '::ffff:127.0.0.1': [peer('::ffff:127.0.0.1'), undefined],
  '::FFFF:127.1.2.3': [peer('::FFFF:127.1.2.3'), undefined],
  '192.168.1.2': [peer('192.168.1.2'), 403],
  '::ffff:10.0.0.1': [peer('::ffff:10.0.0.1'), 403],
  '128.0.0.1': [peer('128.0.0.1'), 403],
  '127.0.0.1.evil.com': [peer('127.0.0.1.evil.com'), 403],
  'fe80::1': [peer('fe80::1'), 403],
  '::': [peer('::'), 403],
  'no address (a socket that is gone)': [peer(undefined), 403],
});

table('the Host', {
  localhost: [host('localhost'), undefined],
  'localhost:3080': [host('localhost:3080'), undefined],
  'LocalHost:1': [host('LocalHost:1'), undefined],
  '127.0.0.1:65535': [host('127.0.0.1:65535'), undefined],
  '127.200.0.1': [host('127.200.0.1'), undefined],
  '[::1]': [host('[::1]'), undefined],
  '[::1]:3080': [host('[::1]:3080'), undefined],
  'evil.com': [host('evil.com'), 403],
  'evil.com:3080': [host('evil.com:3080'), 403],
  'localhost.evil.com': [host('localhost.evil.com'), 403],
  '127.0.0.1.nip.io': [host('127.0.0.1.nip.io'), 403],
  'localhost.': [host('localhost.'), 403],
  'evil@localhost': [host('evil@localhost'), 403],
  'localhost/evil': [host('localhost/evil'), 403],
  '127.1': [host('127.1'), 403],
  '0x7f.0.0.1': [host('0x7f.0.0.1'), 403],
  '2130706433': [host('2130706433'), 403],
  '127.0.0.256': [host('127.0.0.256'), 403],
  '0.0.0.0': [host('0.0.0.0'), 403],
  '192.168.1.2:3080': [host('192.168.1.2:3080'), 403],
  '[::ffff:127.0.0.1]': [host('[::ffff:127.0.0.1]'), 403],
  '::1': [host('::1'), 403],
  'localhost:': [host('localhost:'), 403],
  'localhost:65536': [host('localhost:65536'), 403],
  'localhost:http': [host('localhost:http'), 403],
  'localhost with a blank': [host('localhost '), 403],
  empty: [host(''), 403],
  none: [host(), 403],
  'two of them': [host('localhost', 'evil.com'), 403],
});

table('Sec-Fetch-Site', {
  absent: [{}, undefined],
  'same-origin': [site('same-origin'), undefined],
  'none (typed into the address bar)': [site('none'), undefined],
  'cross-site': [site('cross-site'), 403],
  'same-site (another port of this machine)': [site('same-site'), 403],
  'something new': [site('elsewhere'), 403],
  'one good, one bad': [site('same-origin', 'cross-site'), 403],
});

table('the Origin', {
  'our own': [origin('http://localhost:3080'), undefined],
  'our own on 127.0.0.1': [origin('http://127.0.0.1:3080', '127.0.0.1:3080'), undefined],
  'our own on [::1]': [origin('http://[::1]:3080', '[::1]:3080'), undefined],
  'our own on the port that goes without saying': [origin('http://localhost', 'localhost:80'), undefined],
  'our own over TLS': [origin('https://localhost:3443', 'localhost:3443', true), undefined],
  'another host': [origin('http://evil.com'), 403],
  'another port': [origin('http://localhost:5173'), 403],
  'another name of this machine': [origin('http://127.0.0.1:3080'), 403],
  'another scheme': [origin('https://localhost:3080'), 403],
  'plain where we are TLS': [origin('http://localhost:3443', 'localhost:3443', true), 403],
  null: [origin('null'), 403],
  empty: [origin(''), 403],
  unparsable: [origin('http://['), 403],
  'with a user': [origin('http://user@localhost:3080'), 403],
  'with a path': [origin('http://localhost:3080/evil'), 403],
  'two of them': [{ headers: { origin: ['http://localhost:3080', 'http://localhost:3080'] } }, 403],
});

table('the login', {
  passed: [{ login: undefined }, undefined],
  missing: [{ login: 401 }, 401],
  'refused by the harness': [{ login: 403 }, 403],
  'missing, from a foreign page': [{ ...origin('http://evil.com'), login: 401 }, 403],
});

table('the token', {
  right: [bearer(`Bearer ${TOKEN}`), undefined],
  'right, in another spelling of the scheme': [bearer(`bearer   ${TOKEN} `), undefined],
  'right, in place of a login': [bearer(`Bearer ${TOKEN}`, { login: 401 }), undefined],
  'right, in place of an Origin': [bearer(`Bearer ${TOKEN}`, origin('http://evil.com')), undefined],
  'right, from another machine': [bearer(`Bearer ${TOKEN}`, peer('10.0.0.1')), 403],
  'right, by another Host': [bearer(`Bearer ${TOKEN}`, host('evil.com')), 403],
  'right, from a page of another site': [bearer(`Bearer ${TOKEN}`, site('cross-site')), 403],
  'wrong, where no login is needed': [bearer('Bearer wrong'), 401],
  'wrong, by somebody who is logged in': [bearer('Bearer wrong', { login: undefined }), 401],
  'wrong, from another machine': [bearer('Bearer wrong', peer('10.0.0.1')), 403],
  missing: [bearer('Bearer'), 401],
  'right and wrong at once': [{ headers: { authorization: [`Bearer ${TOKEN}`, 'Bearer wrong'] } }, 401],
  'of another scheme, where no login is needed': [bearer('Basic dTpw'), undefined],
  'of another scheme, where a login is needed': [bearer('Basic dTpw', { login: 401 }), 401],
  'of a scheme that only begins the same': [bearer(`Bearers ${TOKEN}`, { login: 401 }), 401],
});

test('whoever fails the fence is not even looked up in the login', () => {
  const never = (): never => assert.fail('asked');
  for (const facts of [{ ...LOCAL, peer: '10.0.0.1' }, { ...LOCAL, headers: { host: ['evil.com'] } }]) {
    assert.equal(fence(facts, { isToken: never, login: never })?.status, 403);
  }
});
