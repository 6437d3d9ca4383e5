// "computesdk" with "@computesdk/e2b", unmodified. It takes no key that does not
// begin with e2b_.
import { e2b } from '@computesdk/e2b'
import { compute } from 'computesdk'
import { assert, check, done } from './checks.mjs'

compute.setConfig({ provider: e2b({ apiKey: `e2b_${process.env.E2B_API_KEY}` }) })

let box
await check('create', async () => {
  box = await compute.sandbox.create()
  assert.match(box.sandboxId, /^[0-9a-v]{26}$/)
})
await check('run', async () => {
  const r = await box.runCommand('echo out; echo err >&2')
  assert.deepEqual([r.stdout, r.stderr, r.exitCode], ['out\n', 'err\n', 0])
})
await check('run: exit code', async () => assert.equal((await box.runCommand('exit 4')).exitCode, 4))
await check('run: directory and variables', async () => {
  const r = await box.runCommand('pwd && echo "$A"', { cwd: '/tmp', env: { A: 'b' } })
  assert.match(r.stdout, /^\/tmp\n/)
})
await check('run: in the background', async () => {
  assert.equal((await box.runCommand('sleep 1', { background: true })).exitCode, 0)
})
await check('python', async () => assert.equal((await box.runCommand('python3 -c "print(6*7)"')).stdout, '42\n'))
await check('files', async () => {
  await box.filesystem.writeFile('/workspace/d/a.txt', 'ü')
  assert.equal(await box.filesystem.readFile('/workspace/d/a.txt'), 'ü')
  assert.equal(await box.filesystem.exists('/workspace/d/a.txt'), true)
  await box.filesystem.mkdir('/workspace/d/e')
  assert.deepEqual((await box.filesystem.readdir('/workspace/d')).map((f) => f.name).sort(), ['a.txt', 'e'])
  await box.filesystem.remove('/workspace/d')
  assert.equal(await box.filesystem.exists('/workspace/d'), false)
})
await check('list', async () => {
  assert.ok((await compute.sandbox.list()).some((s) => s.sandboxId === box.sandboxId))
})
await check('by id', async () => {
  const again = await compute.sandbox.getById(box.sandboxId)
  assert.equal((await again.runCommand('echo again')).stdout, 'again\n')
})
await check('info', async () => assert.equal((await box.getInfo()).status, 'running'))
await check('destroy', async () => {
  await box.destroy()
  assert.ok(!(await compute.sandbox.list()).some((s) => s.sandboxId === box.sandboxId))
})
done()
