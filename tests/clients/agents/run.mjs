// The E2B client of "@openai/agents-extensions", unmodified.
import { E2BSandboxClient } from '@openai/agents-extensions/sandbox/e2b'
import { Manifest } from '@openai/agents/sandbox'
import { assert, check, done } from './checks.mjs'

const client = new E2BSandboxClient({ template: 'base', timeout: 300 })
const manifest = new Manifest({
  root: '/workspace/agent',
  entries: { 'README.md': { type: 'file', content: 'hello ü\n' }, 'src/main.py': { type: 'file', content: 'print(6*7)\n' } },
})

let session
await check('create with a manifest', async () => {
  session = await client.create(manifest)
  assert.match(session.state.sandboxId, /^[0-9a-v]{26}$/)
})
await check('running', async () => assert.equal(await session.running(), true))
await check('a command', async () => {
  const out = await session.execCommand({ cmd: 'cat README.md && python3 src/main.py && pwd' })
  assert.match(out, /hello ü\n42\n\/workspace\/agent/)
})
await check('a command that fails', async () => assert.match(await session.execCommand({ cmd: 'exit 3' }), /\b3\b/))
await check('a terminal', async () => {
  assert.equal(session.supportsPty(), true)
  const out = await session.execCommand({ cmd: 'stty size; read line; echo got $line', tty: true, yieldTimeMs: 1500 })
  const id = Number(out.match(/session(?: ID)?:? (\d+)/i)?.[1])
  assert.ok(id > 0, out)
  assert.match(await session.writeStdin({ sessionId: id, chars: 'it\n', yieldTimeMs: 3000 }), /got it/)
})
await check('files', async () => {
  assert.equal(Buffer.from(await session.readFile({ path: 'README.md' })).toString(), 'hello ü\n')
  assert.deepEqual([await session.pathExists('README.md'), await session.pathExists('none')], [true, false])
  assert.equal(await session.directoryExists('src'), true)
})
await check('an editor', async () => {
  const editor = session.createEditor()
  await editor.createFile({ type: 'create_file', path: 'new.txt', diff: '+one\n+two\n' })
  assert.match(Buffer.from(await session.readFile({ path: 'new.txt' })).toString(), /one\ntwo/)
  await editor.deleteFile({ type: 'delete_file', path: 'new.txt' })
  assert.equal(await session.pathExists('new.txt'), false)
})
await check('the workspace as an archive, into another sandbox', async () => {
  await session.execCommand({ cmd: 'echo kept >kept.txt' })
  const archive = await session.persistWorkspace()
  assert.ok(archive.length > 512)
  const second = await client.create(new Manifest({ root: '/workspace/agent' }))
  await second.hydrateWorkspace(archive)
  assert.equal(Buffer.from(await second.readFile({ path: 'kept.txt' })).toString(), 'kept\n')
  await second.delete()
})
await check('resume by state', async () => {
  const state = await client.deserializeSessionState(await client.serializeSessionState(session.state))
  const again = await client.resume(state)
  assert.equal(Buffer.from(await again.readFile({ path: 'kept.txt' })).toString(), 'kept\n')
})
await check('delete', async () => {
  await session.delete()
  assert.equal(await session.running().catch(() => false), false)
})
done()
