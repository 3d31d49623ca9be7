// Bundles the browser half into one classic script, in the format that the harness's module system loads:
// a factory under the package's name, which is handed `require` and gives back the exports.

import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { build, transform } from 'esbuild'

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

/** What we use of React: taken out once each, a call is shorter than through the module it comes from. */
const used = 'createElement, Fragment, memo, useCallback, useEffect, useId, useMemo, useReducer, useRef, useState, useSyncExternalStore'

/** Classes that others hold on to; all others are our own business. */
const kept = ['gl', 'gl-dock', 'gl-hint', 'gl-name', 'gl-now', 'gl-plugin', 'gl-row', 'gl-rows', 'gl-selector']

/**
 * Everything that only makes the script smaller: what the source says for people is abbreviated.
 * @type {import('esbuild').Plugin}
 */
const smaller = {
  name: 'smaller',
  async setup(bundle) {
    const { DICTIONARIES: { en, zh } } = await import('./src/words/index.ts')
    const words = shortWords(Object.keys(en))
    const styles = await Promise.all((await readdir(source)).filter((name) => name.endsWith('.css')).sort().map((name) => readFile(new URL(name, source), 'utf8')))
    const classes = short(styles.join().match(/(?<=\.)gl-[a-z-]+/g) ?? [], 'gl-', kept)
    const colours = short((styles.join().match(/(?<=var\()--dsw-[\w-]+(?=\))/g) ?? []).filter((name, at, all) => all.indexOf(name) !== at), '--gl-')
    const palette = `.gl,[class*=gl-]{${[...colours].map(([name, abbreviated]) => `${abbreviated}:var(${name})`).join(';')}}`

    bundle.onResolve({ filter: /^react$/ }, ({ path, namespace }) => (namespace === 'shell' ? { path, external: true } : { path, namespace: 'shell' }))
    bundle.onLoad({ filter: /.*/, namespace: 'shell' }, () => ({ contents: `const { ${used} } = require('react'); export { ${used} }` }))

    // Sentences stand one on a line, those of the second language in the order of the first.
    bundle.onLoad({ filter: /\/words\/(?:en|zh)\.ts$/ }, ({ path }) => {
      const first = path.endsWith('/en.ts')
      const names = Object.keys(en).map((word) => words.get(word) ?? word)
      const sentences = Object.keys(en).map((word) => (first ? en : zh)[/** @type {keyof typeof en} */ (word)])
      if (sentences.some((sentence) => /[\n`\\$]/u.test(sentence))) throw new Error('a sentence is one line of plain text')
      const lines = `\`${sentences.join('\n')}\`.split('\\n')`
      const contents = first
        ? `export const names = '${names.join(' ')}'.split(' '), zip = (lines) => Object.fromEntries(names.map((name, at) => [name, lines[at]])), en = zip(${lines})`
        : `import { zip } from './en.ts'; export const zh = zip(${lines})`
      return { contents, loader: 'js' }
    })
    bundle.onLoad({ filter: /\/src\/.*\.tsx?$/ }, async ({ path }) => {
      const text = await readFile(path, 'utf8')
      const composed = /`(?!ordinal\.)[a-z]+\.[\w.]*\$\{[^`]*`/u.exec(text)
      if (composed !== null) throw new Error(`${path}: ${composed[0]}: the name of a word has to stand whole`)
      const contents = text
        .replace(/'([a-z]\w*(?:\.\w+)+)'/gu, (literal, name) => (words.has(name) ? `'${words.get(name)}'` : literal))
        .replace(/(?<=["'` ])gl-[a-z-]+(?=["'` $])/gu, (name) => classes.get(name) ?? name)
      return { contents, loader: path.endsWith('x') ? 'tsx' : 'ts' }
    })
    bundle.onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const text = (await readFile(path, 'utf8'))
        .replace(/(?<=\.)gl-[a-z-]+/gu, (name) => classes.get(name) ?? name)
        .replace(/(?<=var\()--dsw-[\w-]+(?=\))/gu, (name) => colours.get(name) ?? name)
      const { code } = await transform((path.endsWith('/style.css') ? palette : '') + text, { loader: 'css', minify: true, charset: 'utf8' })
      return { contents: code, loader: 'text' }
    })
  },
}

const source = new URL('src/', import.meta.url)

/**
 * Short names for long ones; a prefix keeps them apart from those of others. Without one they are two letters and digits each,
 * the first a letter: numbers as keys would not keep their order.
 * @param {readonly string[]} names
 * @param {string} prefix
 * @param {readonly string[]} kept
 * @returns {ReadonlyMap<string, string>}
 */
function short(names, prefix, kept = []) {
  return new Map([...new Set(names)].filter((name) => !kept.includes(name)).map((name, at) => [name, prefix + (at + (prefix === '' ? 370 : 10)).toString(36)]))
}

/**
 * Short names for words, and for what the forms of a word have in common.
 * @param {readonly string[]} words
 * @returns {ReadonlyMap<string, string>}
 */
function shortWords(words) {
  const bases = words.map((word) => /^(.+\..+)\.(?:one|two|few|other)$/u.exec(word)?.[1] ?? word).filter((base) => base.includes('.') && !base.startsWith('ordinal.'))
  const found = short(bases, '')
  return new Map([...found, ...words.flatMap((word) => [...found].filter(([base]) => word.startsWith(`${base}.`) && !found.has(word)).map(([base, to]) => /** @type {const} */ ([word, to + word.slice(base.length)])))])
}

/**
 * Bundles the browser half.
 * @returns {Promise<string>} the script
 */
export async function bundle() {
  const { name } = JSON.parse(await readFile(new URL('../host-shim/dsh/package.json', import.meta.url), 'utf8'))
  const { outputFiles } = await build({
    absWorkingDir: fileURLToPath(new URL('.', import.meta.url)),
    // The exports alone, without what makes them a module of another kind.
    stdin: { contents: "import { apply, inject } from './src/index.ts'; Object.assign(exports, { apply, inject })", resolveDir: fileURLToPath(new URL('.', import.meta.url)) },
    bundle: true,
    write: false,
    format: 'cjs',
    platform: 'browser',
    target: 'es2022',
    jsx: 'transform',
    jsxFactory: 'createElement',
    jsxFragment: 'Fragment',
    inject: ['jsx.mjs'],
    define: { undefined: 'nothing' },
    // Types are checked elsewhere, with markup in its other form.
    tsconfigRaw: {},
    minify: true,
    charset: 'utf8',
    legalComments: 'none',
    external: ['@deepseek-ai/*'],
    plugins: [smaller],
    banner: {
      js: `window.__ModuleLoader__.load({id:${JSON.stringify(name)},factory:(require)=>{"use strict";var module={exports:{}};var exports=module.exports;`,
    },
    footer: { js: 'return module.exports}});' },
    logLevel: 'warning',
  })
  const script = outputFiles[0]?.text ?? ''
  const { DICTIONARIES: { en } } = await import('./src/words/index.ts')
  for (const word of shortWords(Object.keys(en)).keys()) {
    if (new RegExp(`["'\`]${word.replaceAll('.', '\\.')}["'\`]`).test(script)) throw new Error(`${word} is not abbreviated: a word stands in single quotes`)
  }
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
