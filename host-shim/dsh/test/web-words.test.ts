/** What an error says to whoever asks over HTTP: no path of a file, no credentials. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { inWords } from '../src/report.ts';

/** Each error, and what is told of it. */
const check = (cases: Readonly<Record<string, string>>): void => {
  for (const [error, told] of Object.entries(cases)) assert.equal(inWords(new Error(error)), told, error);
};

describe('errors in words', () => {
  test('no path is told, however it is written', () => {
    check({
      "EACCES: permission denied, open '/Users/John Q Smith/.dsh/models.json'": 'EACCES: permission denied, open …',
      "can't open '/x/Pat O'Brien the Third/y', it's gone": "can't open … it's gone",
      'ENOENT:/home/me/secret/x': '…',
      'open:/home/me/a.yml failed': '… failed',
      'C:\\Users\\John Smith\\x.yml': '… …',
      '\\\\server\\share\\x': '…',
      'x/home/me/secret': '…',
      'at x (/home/me/a.js:1:2)': 'at x …',
      '"/never/ends in a quotation mark': '…',
      'file:///home/me/x.yml is gone': '… is gone',
      'no space left': 'no space left',
    });
  });

  test('what a plugin wants and is offered is told', () => {
    check({
      'wants `wasi:cli/stdin@0.2.0` from its host; this host lends dsh:plugin/{log, models} and nothing else':
        'wants `wasi:cli/stdin@0.2.0` from its host; this host lends dsh:plugin/{log, models} and nothing else',
      'speaks dsh:plugin/settings@0.9.0, this host speaks 0.1.0': 'speaks dsh:plugin/settings@0.9.0, this host speaks 0.1.0',
      'file:home/me@0.1.0/x file:home/me a:b/c@1': '… … …',
    });
  });

  test('of an address it is told whose it is, not what for nor by whom', () => {
    check({
      'https://user:pw@host/v1/models?key=sk-123': 'https://host',
      'GET "http://sk-123@box.local:8080/v1 models" failed': 'GET http://box.local:8080 failed',
      'no answer (http://[::1]:8000/v1)': 'no answer http://[::1]:8000',
      'https://host?key=sk-123': 'https://host',
      "https://user:12'3@host/": 'https://host',
      'https://user:1/2@host/': '…',
      'https://user@': '…',
    });
  });

  test('a long one is cut, and nothing is cut open', () => {
    const hidden = inWords(new Error(`${'/a'.repeat(590)} https://sk-123@host/${'x'.repeat(1_000)}`));
    assert.equal(hidden, '… …');
    for (const piece of ['/a', '/', "'a", " '", 'http://', 'x ']) assert.ok(inWords(new Error(piece.repeat(100_000))).length <= 300, piece);
  });
});
