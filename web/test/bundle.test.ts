import assert from 'node:assert/strict'
import { test } from 'node:test'
import { runInNewContext } from 'node:vm'
import * as builder from '../build.mjs'

/** What the script registers with a page's module system, as that reads it. */
async function registered(): Promise<{ id: string; factory: (require: (name: string) => unknown) => Record<string, unknown> }[]> {
  const found: Awaited<ReturnType<typeof registered>> = []
  runInNewContext(await builder.bundle(), { window: { __ModuleLoader__: { load: (module: (typeof found)[number]) => found.push(module) } } })
  return found
}

test('the script registers one module under the name of the package, and nothing runs before it is asked for', async () => {
  const { default: manifest } = await import('../../host-shim/dsh/package.json', { with: { type: 'json' } })
  assert.deepEqual((await registered()).map(({ id }) => id), [manifest.name])
  assert.equal(manifest.exports['./client'], './dist/client.js')
})

test('what the shell does not provide in every version may not be required', () => {
  builder.check('var a=require("react"),b=require("@deepseek-ai/dsh-client-ui-primitives")')
  assert.throws(() => builder.check('require("@deepseek-ai/dsh-client-ui-settings/client")'), /not every shell/)
  assert.throws(() => builder.check('require("zod")'), /not every shell/)
  assert.throws(() => builder.check('require(name)'), /not every shell/)
})

test('a script above the limit is refused', () => {
  builder.check('x'.repeat(60_000))
  assert.throws(() => builder.check('x'.repeat(60_001)), /60001 bytes/)
})
