// The command line "@e2b/cli", unmodified. It drives sandboxes that the SDK in it
// and other programs made.
import { spawn } from 'node:child_process'
import { assert, check, done, eventually } from './checks.mjs'

const program = 'node_modules/@e2b/cli/dist/index.js'

function e2b(args, input = '') {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [program, ...args], { env: { ...process.env, NO_COLOR: '1' } })
    const out = { stdout: '', stderr: '' }
    for (const stream of ['stdout', 'stderr']) child[stream].on('data', (d) => (out[stream] += d))
    child.on('error', reject)
    child.on('close', (code) => resolve({ code, ...out, all: out.stdout + out.stderr }))
    child.stdin.end(input)
  })
}

let id
await check('sandbox create', async () => {
  const r = await e2b(['sandbox', 'create', 'base', '--detach', '--timeout', '300'])
  assert.equal(r.code, 0, r.all)
  id = r.all.match(/\b[0-9a-v]{26}\b/)?.[0]
  assert.ok(id, r.all)
})
await check('sandbox list', async () => {
  const r = await e2b(['sandbox', 'list', '--format', 'json'])
  assert.equal(r.code, 0, r.all)
  assert.ok(JSON.parse(r.stdout).some((s) => s.sandboxId === id || s.sandboxID === id), r.stdout)
})
await check('sandbox info', async () => {
  const r = await e2b(['sandbox', 'info', id, '--format', 'json'])
  assert.equal(r.code, 0, r.all)
  assert.match(r.stdout, new RegExp(id))
  assert.match(r.stdout, /running/)
})
await check('sandbox exec', async () => {
  const r = await e2b(['sandbox', 'exec', id, 'echo', 'hello'])
  assert.deepEqual([r.code, r.stdout], [0, 'hello\n'], r.all)
})
await check('sandbox exec: exit code and stderr', async () => {
  const r = await e2b(['sandbox', 'exec', id, 'bash', '-c', 'echo no >&2; exit 5'])
  assert.equal(r.code, 5, r.all)
  assert.match(r.stderr, /no\n/)
})
await check('sandbox exec: directory and variables', async () => {
  const r = await e2b(['sandbox', 'exec', '--cwd', '/tmp', '--env', 'A=b', id, 'sh', '-c', 'pwd; echo $A'])
  assert.deepEqual([r.code, r.stdout], [0, '/tmp\nb\n'], r.all)
})
await check('sandbox exec: input', async () => {
  const r = await e2b(['sandbox', 'exec', id, 'cat'], 'from a pipe\n')
  assert.deepEqual([r.code, r.stdout], [0, 'from a pipe\n'], r.all)
})
await check('sandbox exec: in the background', async () => {
  assert.equal((await e2b(['sandbox', 'exec', '--background', id, 'touch', '/workspace/later'])).code, 0)
  await eventually('it has run', async () => (await e2b(['sandbox', 'exec', id, 'ls', '/workspace'])).stdout.includes('later'))
})
await check('sandbox metrics', async () => {
  const r = await e2b(['sandbox', 'metrics', id, '--format', 'json'])
  assert.equal(r.code, 0, r.all)
  assert.match(r.stdout, /mem/i)
})
await check('sandbox pause and resume', async () => {
  const paused = await e2b(['sandbox', 'pause', id])
  assert.equal(paused.code, 0, paused.all)
  const resumed = await e2b(['sandbox', 'resume', id])
  assert.equal(resumed.code, 0, resumed.all)
  assert.equal((await e2b(['sandbox', 'exec', id, 'echo', 'resumed'])).stdout, 'resumed\n')
})
await check('sandbox kill', async () => {
  assert.equal((await e2b(['sandbox', 'kill', id])).code, 0)
  const r = await e2b(['sandbox', 'list', '--format', 'json'])
  assert.ok(!r.stdout.includes(id), r.stdout)
})
await check('sandbox kill: what is dead', async () => {
  assert.match((await e2b(['sandbox', 'kill', id])).all, /not found|wasn't found/i)
})
await check('sandbox kill --all', async () => {
  for (let i = 0; i < 2; i++) assert.equal((await e2b(['sandbox', 'create', '--detach'])).code, 0)
  const r = await e2b(['sandbox', 'kill', '--all'])
  assert.equal(r.code, 0, r.all)
  assert.doesNotMatch((await e2b(['sandbox', 'list', '--format', 'json'])).stdout, /[0-9a-v]{26}/)
})
done()
