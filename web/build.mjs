// Bundles the browser half into one classic script, in the format that the harness's module system loads:
// a factory under the package's name, which is handed `require` and gives back the exports.

import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { pathToFileURL } from 'node:url'
import { build } from 'esbuild'

/** What the page's shell hands out in every version of the harness; anything else may be missing when we are loaded. */
const provided = [
  'react',
  'react/jsx-runtime',
  'react-dom',
  '@deepseek-ai/dsh-client-ui-slots',
  '@deepseek-ai/dsh-client-ui-primitives',
]

/** How many bytes the script may have. */
const limit = 60_000

/**
 * Bundles the browser half.
 * @returns {Promise<string>} the script
 */
export async function bundle() {
  const { name } = JSON.parse(await readFile(new URL('../host-shim/dsh/package.json', import.meta.url), 'utf8'))
  const { outputFiles } = await build({
    absWorkingDir: new URL('.', import.meta.url).pathname,
    entryPoints: ['src/index.ts'],
    bundle: true,
    write: false,
    format: 'cjs',
    platform: 'browser',
    target: 'es2022',
    jsx: 'automatic',
    minify: true,
    legalComments: 'none',
    loader: { '.css': 'text' },
    external: ['react', 'react/jsx-runtime', 'react-dom', '@deepseek-ai/*'],
    banner: {
      js: `window.__ModuleLoader__.load({id:${JSON.stringify(name)},factory:(require)=>{"use strict";var module={exports:{}};var exports=module.exports;`,
    },
    footer: { js: 'return module.exports}});' },
    logLevel: 'warning',
  })
  const script = outputFiles[0]?.text ?? ''
  check(script)
  return script
}

/**
 * @param {string} script
 * @throws {Error} if the script is too large or asks for what not every shell provides
 */
export function check(script) {
  const size = Buffer.byteLength(script)
  if (size > limit) throw new Error(`the browser half has ${size} bytes, more than ${limit}`)
  for (const [call, specifier] of script.matchAll(/\brequire\(\s*(?:["'`]([^"'`]*)["'`]\s*\))?/g)) {
    if (specifier === undefined || !provided.includes(specifier)) {
      throw new Error(`the browser half calls ${call}, which not every shell provides; it provides ${provided.join(', ')}`)
    }
  }
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const folder = new URL('../host-shim/dsh/dist/', import.meta.url)
  await mkdir(folder, { recursive: true })
  await writeFile(new URL('client.js', folder), await bundle())
}
