// The SDK "e2b", unmodified, as its users use it.
import { createHash, randomBytes } from 'node:crypto'
import {
  AuthenticationError, CommandExitError, FileType, InvalidArgumentError, NotEnoughSpaceError, NotFoundError,
  Sandbox, SandboxError, SandboxNotFoundError, TimeoutError,
} from 'e2b'
import { assert, check, done, eventually, rejects } from './checks.mjs'

const other = process.env.OTHER_KEY
const noShell = process.env.NO_SHELL_KEY

let box
await check('create', async () => {
  box = await Sandbox.create({ metadata: { app: 'checks', 'a.b': 'ü & =' }, envs: { GIVEN: 'at creation' }, timeoutMs: 120_000 })
  assert.match(box.sandboxId, /^[a-z0-9]+$/)
})
await check('create from a template by name', async () => {
  const s = await Sandbox.create('base', { timeoutMs: 60_000 })
  assert.equal((await s.getInfo()).templateId, 'base')
  await s.kill()
})
await check('create from a template that does not exist', () => rejects(Sandbox.create('no-such-template'), SandboxError, 'image'))
await check('info', async () => {
  const info = await box.getInfo()
  assert.equal(info.sandboxId, box.sandboxId)
  assert.deepEqual(info.metadata, { app: 'checks', 'a.b': 'ü & =' })
  assert.equal(info.state, 'running')
  assert.ok(info.cpuCount >= 1 && info.memoryMB > 0)
  assert.ok(info.endAt - info.startedAt > 100_000)
})
await check('is running', async () => assert.equal(await box.isRunning(), true))
await check('list', async () => {
  const all = await Sandbox.list().nextItems()
  assert.ok(all.some((s) => s.sandboxId === box.sandboxId))
})
await check('list by metadata', async () => {
  const second = await Sandbox.create({ metadata: { app: 'another' } })
  const found = await Sandbox.list({ query: { metadata: { 'a.b': 'ü & =' } } }).nextItems()
  assert.deepEqual(found.map((s) => s.sandboxId), [box.sandboxId])
  await second.kill()
})
await check('list page by page', async () => {
  const more = await Promise.all([1, 2].map(() => Sandbox.create({ metadata: { app: 'pages' } })))
  const pages = Sandbox.list({ limit: 1, query: { metadata: { app: 'pages' } } })
  const seen = []
  while (pages.hasNext) seen.push(...(await pages.nextItems()).map((s) => s.sandboxId))
  assert.deepEqual(seen.sort(), more.map((s) => s.sandboxId).sort())
  await Promise.all(more.map((s) => s.kill()))
})
await check('set timeout', async () => {
  await box.setTimeout(300_000)
  const left = (await box.getInfo()).endAt - Date.now()
  assert.ok(left > 290_000 && left < 310_000, `${left}`)
})
await check('connect never shortens the time', async () => {
  const again = await Sandbox.connect(box.sandboxId, { timeoutMs: 10_000 })
  assert.equal((await again.commands.run('echo again')).stdout, 'again\n')
  assert.ok((await again.getInfo()).endAt - Date.now() > 200_000)
})
await check('the time ends a sandbox', async () => {
  const short = await Sandbox.create({ timeoutMs: 1500 })
  await eventually('it has ended', async () => !(await short.isRunning()))
  await rejects(short.commands.run('echo x'), SandboxNotFoundError)
})
await check('metrics', async () => {
  const m = (await box.getMetrics()).at(-1)
  assert.ok(m.memUsed > 0 && m.memTotal > m.memUsed && m.cpuCount >= 1 && m.diskTotal > 0, JSON.stringify(m))
})
await check('pause, and connect resumes', async () => {
  const s = await Sandbox.create({ timeoutMs: 60_000, metadata: { app: 'paused' } })
  await s.files.write('kept.txt', 'in a file')
  const cat = await s.commands.run('cat', { background: true, stdin: true })
  await s.commands.sendStdin(cat.pid, 'before\n')
  await s.pause()
  assert.equal((await s.getInfo()).state, 'paused')
  assert.equal(await s.isRunning(), false)
  assert.equal(await Sandbox.pause(s.sandboxId), false) // it is already
  const paused = await Sandbox.list({ query: { metadata: { app: 'paused' }, state: ['paused'] } }).nextItems()
  assert.deepEqual(paused.map((p) => p.sandboxId), [s.sandboxId])
  await rejects(s.commands.run('echo x'), SandboxError)

  const again = await Sandbox.connect(s.sandboxId, { timeoutMs: 60_000 })
  assert.equal((await again.getInfo()).state, 'running')
  assert.equal(await again.files.read('kept.txt'), 'in a file')
  const whole = await again.commands.connect(cat.pid)
  await again.commands.sendStdin(cat.pid, 'after\n')
  await again.commands.closeStdin(cat.pid)
  assert.equal((await whole.wait()).stdout, 'before\nafter\n')
  await again.pause()
  await again.kill()
  await rejects(Sandbox.connect(s.sandboxId), SandboxNotFoundError)
})
await check('fork and snapshots are refused with a sentence', () => rejects(Sandbox.createSnapshot(box.sandboxId), SandboxError, 'snapshots'))

await check('create with what does not exist here', async () => {
  await rejects(Sandbox.create({ lifecycle: { onTimeout: 'pause' } }), SandboxError, 'not paused')
  await rejects(Sandbox.create({ network: { denyOut: ['0.0.0.0/0'] } }), SandboxError, 'no network')
  await rejects(Sandbox.create({ volumeMounts: { '/data': 'volume' } }), SandboxError, 'no volumes')
})
await check('what does not exist here says so', async () => {
  for (const path of ['/templates', '/v3/templates', '/templates/x/builds/y', '/volumes', '/volumes/x', '/snapshots', `/sandboxes/${box.sandboxId}/logs`]) {
    const ask = (key) => fetch(process.env.E2B_API_URL + path, { headers: key && { 'X-API-Key': key } })
    const res = await ask(process.env.E2B_API_KEY)
    const body = await res.json()
    assert.equal(res.status, 501, path)
    assert.equal(body.code, 501)
    assert.ok(body.message.split(' ').length > 4, body.message)
    assert.equal((await ask(undefined)).status, 401, path)
  }
})

await check('run', async () => {
  const r = await box.commands.run('echo out; echo err >&2')
  assert.deepEqual([r.stdout, r.stderr, r.exitCode], ['out\n', 'err\n', 0])
})
await check('run: exit code', async () => {
  const err = await rejects(box.commands.run('echo before; exit 7'), CommandExitError)
  assert.deepEqual([err.exitCode, err.stdout], [7, 'before\n'])
})
await check('run: exit code 137 is the program’s own', async () => {
  assert.equal((await rejects(box.commands.run('exit 137'), CommandExitError)).exitCode, 137)
})
await check('run: who and where', async () => {
  assert.equal((await box.commands.run('id -un; pwd')).stdout, 'agent\n/workspace\n')
})
await check('run: variables', async () => {
  assert.equal((await box.commands.run('echo $GIVEN $MORE', { envs: { MORE: 'and now' } })).stdout, 'at creation and now\n')
})
await check('run: in a directory', async () => {
  await box.files.makeDir('some/where')
  assert.equal((await box.commands.run('pwd', { cwd: '/workspace/some/where' })).stdout, '/workspace/some/where\n')
  assert.equal((await box.commands.run('pwd', { cwd: 'some' })).stdout, '/workspace/some\n')
  assert.equal((await box.commands.run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
})
await check('run: in a directory that does not exist', () => rejects(box.commands.run('pwd', { cwd: '/no/such' }), InvalidArgumentError, 'does not exist'))
await check('run: another user is refused with a sentence', () => rejects(box.commands.run('id', { user: 'root' }), InvalidArgumentError, 'one user'))
await check('run: unicode', async () => {
  const text = 'Grüße 世界 🚀'
  assert.equal((await box.commands.run(`printf '%s' '${text}'`)).stdout, text)
})
await check('run: characters are not cut', async () => {
  const n = 200_000
  const r = await box.commands.run(`python3 -c "import sys; sys.stdout.write('é世🚀'*${n})"`)
  assert.equal(r.stdout, 'é世🚀'.repeat(n))
})
await check('run: streaming', async () => {
  const seen = []
  let first
  const arrived = new Promise((resolve) => (first = resolve))
  const running = box.commands.run('echo one; read line; echo $line', {
    background: true, stdin: true, onStdout: (data) => { seen.push(data); first() },
  })
  const handle = await running
  await arrived // while it runs
  await box.commands.sendStdin(handle.pid, 'two\n')
  await handle.wait()
  assert.equal(seen.join(''), 'one\ntwo\n')
})
await check('run: 10 MB of output', async () => {
  const r = await box.commands.run('head -c 10000000 /dev/zero | tr "\\0" x')
  assert.equal(r.stdout.length, 10_000_000)
})
await check('run: time limit', () => rejects(box.commands.run('sleep 30', { timeoutMs: 500 }), TimeoutError))
await check('run: what its time limit ended is gone', async () => {
  await eventually('no sleep runs', async () => !(await box.commands.run('cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\\0" " "')).stdout.includes('sleep 30'))
})
await check('run: in the background, and wait', async () => {
  const handle = await box.commands.run('sleep 0.2; echo late', { background: true })
  assert.ok(handle.pid > 0)
  assert.equal((await handle.wait()).stdout, 'late\n')
})
await check('run: list', async () => {
  const handle = await box.commands.run('sleep 20', { background: true })
  const mine = (await box.commands.list()).filter((p) => p.pid === handle.pid)
  assert.equal(mine.length, 1)
  assert.deepEqual([mine[0].cmd, mine[0].args.at(-1)], ['/bin/bash', 'sleep 20'])
  await handle.kill()
  await eventually('it is not listed', async () => !(await box.commands.list()).some((p) => p.pid === handle.pid))
})
await check('run: kill', async () => {
  const handle = await box.commands.run('sleep 20', { background: true })
  assert.equal(await handle.kill(), true)
  await rejects(handle.wait(), CommandExitError, 'killed')
  assert.equal(await box.commands.kill(handle.pid), false)
})
await check('run: kill what never was', async () => assert.equal(await box.commands.kill(123_456_789), false))
await check('run: stdin and its end', async () => {
  const handle = await box.commands.run('cat; echo end', { background: true, stdin: true })
  await box.commands.sendStdin(handle.pid, 'über\n')
  await box.commands.sendStdin(handle.pid, new Uint8Array([0x62, 0x0a]))
  await box.commands.closeStdin(handle.pid)
  assert.equal((await handle.wait()).stdout, 'über\nb\nend\n')
})
await check('run: stdin after its end', async () => {
  const handle = await box.commands.run('cat; sleep 5', { background: true, stdin: true })
  await box.commands.closeStdin(handle.pid)
  await rejects(box.commands.sendStdin(handle.pid, 'late'), SandboxError)
  await handle.kill()
})
await check('run: without stdin a program reads its end', async () => {
  assert.equal((await box.commands.run('cat; echo end')).stdout, 'end\n')
})
await check('run: disconnect, and connect again', async () => {
  const handle = await box.commands.run('echo early; sleep 1; echo late', { background: true })
  await handle.disconnect()
  const again = await box.commands.connect(handle.pid)
  const r = await again.wait()
  assert.ok(r.stdout.endsWith('late\n'), r.stdout)
})
await check('run: what is quiet for longer than a client may stall', async () => {
  assert.equal((await box.commands.run('sleep 7; echo late')).stdout, 'late\n')
})
await check('files: watch for longer than that', async () => {
  await box.files.makeDir('quiet')
  const seen = []
  const handle = await box.files.watchDir('quiet', (e) => seen.push(e.name))
  await new Promise((resolve) => setTimeout(resolve, 7000))
  await box.files.write('quiet/late', 'x')
  await eventually('the event', () => seen.includes('late'))
  await handle.stop()
})
await check('run: twenty at once', async () => {
  const all = await Promise.all([...Array(20).keys()].map((i) => box.commands.run(`echo ${i}`)))
  assert.deepEqual(all.map((r) => r.stdout), [...Array(20).keys()].map((i) => `${i}\n`))
})

await check('pty', async () => {
  let out = ''
  const terminal = await box.pty.create({ cols: 80, rows: 24, onData: (data) => { out += Buffer.from(data).toString() } })
  const send = (text) => box.pty.sendInput(terminal.pid, new TextEncoder().encode(text))
  await send('stty size; echo $((6*7))\n')
  await eventually('it answers', () => out.includes('24 80') && out.includes('42'))
  await box.pty.resize(terminal.pid, { cols: 100, rows: 40 })
  await send('stty size\n')
  await eventually('it has another size', () => out.includes('40 100'))
  await rejects(box.pty.resize(terminal.pid, { cols: 0, rows: 0 }), InvalidArgumentError)
  await send('exit 3\n')
  assert.equal((await rejects(terminal.wait(), CommandExitError)).exitCode, 3)
})
await check('pty: kill', async () => {
  const terminal = await box.pty.create({ cols: 80, rows: 24, onData: () => {} })
  assert.equal(await box.pty.kill(terminal.pid), true)
  await rejects(terminal.wait(), CommandExitError)
})

await check('files: write and read', async () => {
  const info = await box.files.write('notes/a.txt', 'Grüße')
  assert.deepEqual([info.name, info.path], ['a.txt', '/workspace/notes/a.txt'])
  assert.equal(await box.files.read('notes/a.txt'), 'Grüße')
  assert.equal(await box.files.read('/workspace/notes/a.txt'), 'Grüße')
})
await check('files: empty', async () => {
  await box.files.write('empty', '')
  assert.equal(await box.files.read('empty'), '')
})
await check('files: many at once', async () => {
  const written = await box.files.write([{ path: 'many/1 with space.txt', data: 'one' }, { path: 'many/zwei-ü.txt', data: 'two' }])
  assert.deepEqual(written.map((f) => f.name), ['1 with space.txt', 'zwei-ü.txt'])
  assert.equal(await box.files.read('many/zwei-ü.txt'), 'two')
})
await check('files: binary', async () => {
  const data = randomBytes(100_000)
  await box.files.write('binary', new Blob([data]))
  assert.deepEqual(Buffer.from(await box.files.read('binary', { format: 'bytes' })), data)
})
await check('files: a stream, and gzip', async () => {
  const stream = new Blob(['streamed']).stream()
  await box.files.write('streamed', stream, { useOctetStream: true })
  assert.equal(await box.files.read('streamed'), 'streamed')
  await box.files.write('zipped', 'z'.repeat(50_000), { gzip: true, useOctetStream: true })
  assert.equal((await box.files.read('zipped')).length, 50_000)
})
await check('files: 50 MB', async () => {
  const data = Buffer.alloc(50_000_000)
  for (let i = 0; i < data.length; i += 4096) data.writeUInt32LE(i, i)
  await box.files.write('big', new Blob([data]))
  const back = Buffer.from(await box.files.read('big', { format: 'bytes' }))
  const sum = (b) => createHash('sha256').update(b).digest('hex')
  assert.equal(sum(back), sum(data))
  assert.equal((await box.commands.run('wc -c <big')).stdout.trim(), '50000000')
  await box.files.remove('big')
})
await check('files: a missing one', () => rejects(box.files.read('no-such'), NotFoundError))
await check('files: what cannot be read', async () => {
  await rejects(box.files.read('/workspace'), InvalidArgumentError, 'directory')
  await rejects(box.files.read('/dev/zero'), InvalidArgumentError, 'regular')
  await box.commands.run('mkfifo fifo')
  await rejects(box.files.read('fifo'), InvalidArgumentError, 'regular')
  await rejects(box.files.read('../etc/passwd'), InvalidArgumentError)
  await rejects(box.files.read('x'.repeat(4096)), InvalidArgumentError)
})
await check('files: more than the disk holds', async () => {
  const chunk = new Blob([Buffer.alloc(8 << 20)])
  await rejects(box.files.write('huge', new Blob(Array(40).fill(chunk))), NotEnoughSpaceError)
  assert.equal(await box.files.exists('huge'), false)
})
await check('files: where nobody may write', () => rejects(box.files.write('/etc/x', 'x'), SandboxError))
await check('files: list', async () => {
  const names = (entries) => entries.map((e) => `${e.type} ${e.path}`)
  await box.files.write('tree/a/b/c.txt', 'c')
  assert.deepEqual(names(await box.files.list('tree')), ['dir /workspace/tree/a'])
  assert.deepEqual(names(await box.files.list('tree', { depth: 3 })), ['dir /workspace/tree/a', 'dir /workspace/tree/a/b', 'file /workspace/tree/a/b/c.txt'])
  await rejects(box.files.list('no-such'), NotFoundError)
})
await check('files: info', async () => {
  await box.commands.run('printf 12345 >five; chmod 640 five; ln -sf five link')
  const info = await box.files.getInfo('five')
  assert.deepEqual([info.type, info.size, info.mode, info.permissions, info.owner], [FileType.FILE, 5, 0o640, '-rw-r-----', 'agent'])
  assert.ok(Math.abs(info.modifiedTime - Date.now()) < 120_000)
  assert.equal((await box.files.getInfo('link')).symlinkTarget, 'five')
})
await check('files: exists, make directory, rename, remove', async () => {
  assert.equal(await box.files.makeDir('d/e'), true)
  assert.equal(await box.files.makeDir('d/e'), false)
  await box.files.write('d/x', '1')
  const moved = await box.files.rename('d/x', 'd/e/y')
  assert.equal(moved.path, '/workspace/d/e/y')
  assert.deepEqual([await box.files.exists('d/x'), await box.files.exists('d/e/y')], [false, true])
  await box.files.remove('d')
  assert.equal(await box.files.exists('d'), false)
  await box.files.remove('d')
  await rejects(box.files.rename('no-such', 'y'), NotFoundError)
})
await check('files: watch', async () => {
  await box.files.makeDir('watched/below')
  const seen = []
  const handle = await box.files.watchDir('watched', (e) => seen.push(`${e.type} ${e.name}`), { recursive: true })
  await box.files.write('plain', 'x')
  await box.commands.run('echo 1 >watched/below/new; chmod 600 watched/below/new; mv watched/below/new watched/old; rm watched/old')
  for (const event of ['create below/new', 'write below/new', 'chmod below/new', 'rename below/new', 'create old', 'remove old'])
    await eventually(event, () => seen.includes(event))
  assert.ok(seen.every((e) => !e.includes('plain')))
  await handle.stop()
})
await check('files: watch what is no directory', async () => {
  await rejects(box.files.watchDir('no-such', () => {}), NotFoundError)
})

await check('files: watchers that are asked', async () => {
  const call = async (name, body) => {
    const res = await fetch(`${process.env.E2B_SANDBOX_URL}/filesystem.Filesystem/${name}`, {
      method: 'POST', body: JSON.stringify(body),
      headers: { 'Content-Type': 'application/json', 'E2b-Sandbox-Id': box.sandboxId, 'X-Access-Token': box.envdAccessToken },
    })
    return { status: res.status, ...(await res.json()) }
  }
  const { watcherId } = await call('CreateWatcher', { path: 'watched', recursive: true })
  assert.ok(watcherId)
  await box.files.write('watched/asked', 'x')
  const seen = []
  await eventually('the event is there', async () => {
    seen.push(...((await call('GetWatcherEvents', { watcherId })).events ?? []))
    return seen.some((e) => e.name === 'asked' && e.type === 'EVENT_TYPE_CREATE')
  })
  assert.equal((await call('RemoveWatcher', { watcherId })).status, 200)
  assert.equal((await call('GetWatcherEvents', { watcherId })).code, 'not_found')
})

await check('ten sandboxes at once, apart from each other', async () => {
  const all = await Promise.all([...Array(10).keys()].map(() => Sandbox.create({ timeoutMs: 60_000 })))
  await Promise.all(all.map((s, i) => s.files.write('who', `${i}`)))
  const read = await Promise.all(all.map((s) => s.commands.run('cat who; ls -A /tmp')))
  assert.deepEqual(read.map((r) => r.stdout), [...Array(10).keys()].map(String))
  assert.deepEqual(await Promise.all(all.map((s) => s.kill())), Array(10).fill(true))
})
await check('a wrong key', async () => {
  await rejects(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) }), AuthenticationError)
  await rejects(Sandbox.list({ apiKey: 'e2b_' + '0'.repeat(40) }).nextItems(), AuthenticationError)
})
await check('another tenant’s sandbox does not exist', async () => {
  await rejects(Sandbox.getInfo(box.sandboxId, { apiKey: other }), SandboxNotFoundError)
  await rejects(Sandbox.connect(box.sandboxId, { apiKey: other }), SandboxNotFoundError)
  assert.equal(await Sandbox.kill(box.sandboxId, { apiKey: other }), false)
  const theirs = await Sandbox.list({ apiKey: other }).nextItems()
  assert.deepEqual(theirs, [])
  assert.equal(await box.isRunning(), true)
})
await check('the token of another sandbox opens nothing', async () => {
  const second = await Sandbox.create()
  const url = process.env.E2B_SANDBOX_URL
  const ask = (token) => fetch(`${url}/files?path=five`, { headers: { 'E2b-Sandbox-Id': box.sandboxId, ...(token && { 'X-Access-Token': token }) } })
  assert.equal((await ask(second.envdAccessToken)).status, 401)
  assert.equal((await ask(undefined)).status, 401)
  assert.equal((await fetch(`${url}/files?path=five`, { headers: { 'E2b-Sandbox-Id': box.sandboxId, 'X-API-Key': process.env.E2B_API_KEY } })).status, 401)
  assert.equal((await ask(box.envdAccessToken)).status, 200)
  await second.kill()
})
await check('a tenant without shells', async () => {
  const s = await Sandbox.create({ apiKey: noShell })
  await rejects(s.commands.run('echo x'), SandboxError, 'may not run shells')
  await s.files.write('x', '1')
  assert.equal(await s.files.read('x'), '1')
  await s.kill()
})
await check('ports are refused with a sentence', async () => {
  const res = await fetch(process.env.E2B_SANDBOX_URL, { headers: { 'E2b-Sandbox-Id': box.sandboxId, 'E2b-Sandbox-Port': '3000' } })
  assert.equal(res.status, 501)
})
await check('kill, and what is dead', async () => {
  assert.equal(await box.kill(), true)
  assert.equal(await box.kill(), false)
  assert.equal(await box.isRunning(), false)
  await rejects(box.commands.run('echo x'), SandboxNotFoundError)
  await rejects(box.files.read('five'), TimeoutError)
  await rejects(box.files.list('.'), TimeoutError)
  await rejects(Sandbox.connect(box.sandboxId), SandboxNotFoundError)
  await rejects(Sandbox.getInfo(box.sandboxId), SandboxNotFoundError)
})
done()
