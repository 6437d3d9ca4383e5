// Our own client, as it is packed, against "agentdock up".
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { AgentDockError, createClient, isAgentDockError, outputBytes } from '@agentdock/client'
import { assert, check, done, eventually, rejects } from './checks.mjs'

const baseUrl = process.env.AGENTDOCK_URL
const apiKey = process.env.AGENTDOCK_API_KEY
const agentdock = createClient({ baseUrl, apiKey })
const { jobs, sandboxes } = agentdock
const python = (code) => ['python3', '-u', '-c', code]
const nobody = '01938c5e-7a1b-7c3d-9e2f-000000000000'

// fails expects the service's error with a code.
async function fails(promise, code, status) {
  const err = await rejects(promise, AgentDockError)
  assert.deepEqual([err.code, err.status], [code, status], err.message)
  assert.ok(err.requestId && err.detail && isAgentDockError(err, code))
}

async function all(events) {
  const seen = []
  for await (const event of events) seen.push(event)
  return seen
}

const text = (events, stream = 'stdout') =>
  Buffer.concat(events.filter((e) => e.output?.stream === stream).map((e) => outputBytes(e.output))).toString()

// breaking is a fetch whose first streams are cut after so many bytes each.
function breaking(...cuts) {
  const opened = []
  const fetcher = async (request) => {
    const response = await fetch(request)
    if (!response.headers.get('Content-Type')?.includes('event-stream')) return response
    opened.push(request.headers.get('Last-Event-ID'))
    let left = cuts.shift()
    if (left === undefined) return response
    const cut = new TransformStream({
      transform(chunk, out) {
        out.enqueue(chunk.subarray(0, left))
        left -= chunk.length
        if (left <= 0) out.error(new TypeError('cut'))
      },
    })
    return new Response(response.body.pipeThrough(cut), response)
  }
  return { fetcher, opened }
}

// ---- who is it

await check('who am I', async () => {
  const me = await agentdock.whoAmI()
  assert.ok(me.key_id && me.scopes.includes('jobs:write'), JSON.stringify(me))
})
await check('wrong key', async () => {
  const stranger = createClient({ baseUrl, apiKey: 'adk_wrong' })
  await fails(stranger.jobs.get(nobody), 'unauthenticated', 401)
  await fails(stranger.sandboxes.create(), 'unauthenticated', 401)
  await fails(all(stranger.jobs.log(nobody)), 'unauthenticated', 401)
})
await check('unknown ids', async () => {
  await fails(jobs.get(nobody), 'not_found', 404)
  await fails(all(jobs.log(nobody)), 'not_found', 404)
  await fails(jobs.wait(nobody), 'not_found', 404)
  await fails(jobs.receipt(nobody), 'not_found', 404)
  await fails(sandboxes.open('0'.repeat(26)).info(), 'not_found', 404)
  await fails(sandboxes.open('0'.repeat(26)).run({ argv: ['true'] }), 'not_found', 404)
})
await check('an id is one name', async () => {
  for (const id of ['', '.', '..']) await rejects(jobs.get(id), TypeError, 'cannot use')
  await fails(jobs.get('../whoami'), 'not_found', 404)
})
await check('no key without encryption', () => {
  assert.throws(() => createClient({ baseUrl: 'http://192.0.2.1:7300', apiKey }), /without encryption/)
  createClient({ baseUrl: 'http://192.0.2.1:7300', apiKey, plainHttp: true })
  createClient({ baseUrl: 'http://[::1]:7300', apiKey })
})
await check('calls without a method', async () => {
  const { data } = await agentdock.api.GET('/healthz')
  assert.equal(data.status, 'ok')
  const { error, response } = await agentdock.api.GET('/v1/jobs/{job_id}', { params: { path: { job_id: nobody } } })
  assert.deepEqual([error.code, response.status], ['not_found', 404])
})

// ---- jobs

const spec = {
  source: { kind: 'fixture' },
  commands: [{ argv: ['python3', 'tools/check.py'] }],
  artifacts: ['dist/**'],
  labels: { made: 'here' },
}
let job
await check('job: submit', async () => {
  job = await jobs.create(spec, { idempotencyKey: 'the-first' })
  assert.deepEqual([job.state, job.spec.labels], ['queued', { made: 'here' }])
})
await check('job: the same key', async () => {
  assert.equal((await jobs.create(spec, { idempotencyKey: 'the-first' })).id, job.id)
  await fails(jobs.create({ ...spec, labels: {} }, { idempotencyKey: 'the-first' }), 'conflict', 409)
})
await check('job: log to its end', async () => {
  const events = await all(jobs.log(job.id))
  assert.match(text(events), /52 passed/)
  const last = events.at(-1)
  assert.deepEqual([last.type, last.end.state, last.end.outcome.kind, last.end.outcome.exit_code], ['end', 'succeeded', 'exited', 0])
})
await check('job: wait', async () => {
  const ended = await jobs.wait(job.id)
  assert.deepEqual([ended.id, ended.state, ended.steps.length], [job.id, 'succeeded', 1])
})
await check('job: artifacts', async () => {
  const list = await jobs.artifacts(job.id)
  assert.deepEqual(list.map((a) => a.path).sort(), ['dist/humanunits-0.4.0.zip', 'dist/report.json'])
  for (const { path, bytes, sha256 } of list) {
    const got = await jobs.download(job.id, path)
    assert.deepEqual([got.length, createHash('sha256').update(got).digest('hex')], [bytes, sha256])
  }
  await fails(jobs.download(job.id, 'dist/none'), 'not_found', 404)
})
await check('job: an artifact that is not the one on record', async () => {
  const other = createClient({
    baseUrl,
    apiKey,
    fetch: async (request) => {
      const response = await fetch(request)
      return new Response('other bytes', { headers: response.headers.has('Repr-Digest') ? { 'Repr-Digest': response.headers.get('Repr-Digest') } : {} })
    },
  })
  await rejects(other.jobs.download(job.id, 'dist/report.json'), Error, 'its digest is')
})
await check('job: receipt', async () => {
  let receipt
  await eventually('a receipt', async () => {
    receipt = await jobs.receipt(job.id).catch((err) => assert.ok(isAgentDockError(err, 'not_found')))
    return receipt
  })
  const envelope = JSON.parse(Buffer.from(receipt).toString())
  const statement = JSON.parse(Buffer.from(envelope.payload, 'base64').toString())
  assert.ok(envelope.signatures.length === 1 && JSON.stringify(statement).includes(job.id))
})
const lines = Array.from({ length: 2000 }, (_, i) => `line ${i} ü\n`).join('')
await check('job: a log that breaks', async () => {
  const { fetcher, opened } = breaking(5_000, 1, 12_000)
  const shaky = createClient({ baseUrl, apiKey, fetch: fetcher })
  const { id } = await jobs.create({
    source: { kind: 'none' },
    commands: [{ argv: python('import time\nfor i in range(2000):\n  print("line", i, "ü")\n  if i % 100 == 0: time.sleep(0.01)') }],
  })
  const events = await all(shaky.jobs.log(id))
  assert.equal(text(events), lines)
  assert.ok(events.at(-1).end && opened.length >= 4 && opened.at(-1) > 0, JSON.stringify(opened))
  const some = events.filter((e) => e.output).at(1)?.output.seq ?? 0
  assert.equal(text(await all(jobs.log(id, { after: some }))), text(events.filter((e) => e.output?.seq > some)))
})
let slow
await check('job: a log that is not followed', async () => {
  slow = await jobs.create({ source: { kind: 'none' }, commands: [{ argv: python('import time; print("begun"); time.sleep(300)') }] })
  for await (const event of jobs.log(slow.id)) if (event.output) break // it runs
  const events = await all(jobs.log(slow.id, { follow: false }))
  assert.deepEqual([text(events), events.at(-1).interrupted.reason], ['begun\n', 'not_following'])
})
await check('job: a log that is left', async () => {
  const signal = AbortSignal.timeout(300)
  const err = await rejects(all(jobs.log(slow.id, { signal })), Error)
  assert.equal(err.name, 'TimeoutError')
  const stopped = new AbortController()
  const waiting = jobs.wait(slow.id, { signal: stopped.signal })
  stopped.abort()
  assert.equal((await rejects(waiting, Error)).name, 'AbortError')
  await eventually('no stream is open', async () => {
    const { data } = await agentdock.api.GET('/metrics', { parseAs: 'text' })
    return data.includes('\nagentdock_api_log_streams 0\n')
  })
  assert.equal((await jobs.get(slow.id)).state, 'running')
})
await check('job: cancel', async () => {
  await jobs.cancel(slow.id)
  const ended = await jobs.wait(slow.id)
  assert.deepEqual([ended.state, ended.outcome.kind], ['cancelled', 'cancelled'])
})
await check('job: list', async () => {
  assert.deepEqual((await all(jobs.list({ label: ['made=here'] }))).map((j) => j.id), [job.id])
  const ids = (await all(jobs.list({ limit: 1 }))).map((j) => j.id)
  assert.ok(ids.length >= 3 && new Set(ids).size === ids.length && ids.includes(job.id), ids.join())
  assert.deepEqual((await all(jobs.list({ state: ['cancelled'] }))).map((j) => j.id), [slow.id])
})
await check('job: an archive', async () => {
  const tar = execFileSync('tar', ['-c', 'checks.mjs'])
  const upload = await jobs.upload(tar)
  assert.deepEqual([upload.bytes, upload.sha256], [tar.length, createHash('sha256').update(tar).digest('hex')])
  const { id } = await jobs.create({ source: { kind: 'archive', upload_id: upload.id }, commands: [{ argv: ['ls'] }] })
  assert.equal(text(await all(jobs.log(id))), 'checks.mjs\n')
})
await check('job: a service that is away', async () => {
  let failures = 2
  const shaky = createClient({
    baseUrl,
    apiKey,
    // Its answer is lost: the job is on record.
    fetch: async (request) => {
      const response = await fetch(request)
      if (failures-- > 0) throw new TypeError('fetch failed')
      return response
    },
  })
  const { id } = await shaky.jobs.create({ source: { kind: 'none' }, commands: [{ argv: ['true'] }], labels: { lost: 'answer' } })
  assert.deepEqual((await all(jobs.list({ label: ['lost=answer'] }))).map((j) => j.id), [id])
})
await check('job: a shell', async () => {
  await fails(jobs.create({ source: { kind: 'none' }, commands: [{ argv: ['sh', '-c', 'true'] }] }), 'denied', 403)
})

// ---- live sandboxes

let box
await check('sandbox: create', async () => {
  box = await sandboxes.create({ ttl_ms: 120_000, labels: { made: 'here' }, env: { A: 'b' } })
  const info = await box.info()
  assert.deepEqual([info.id, info.state, info.env_names], [box.id, 'running', ['A']])
})
await check('sandbox: the same key', async () => {
  const spec = { ttl_ms: 60_000, env: { A: 'b' } }
  const first = await sandboxes.create(spec, { idempotencyKey: 'the-first' })
  assert.equal((await sandboxes.create(spec, { idempotencyKey: 'the-first' })).id, first.id)
  await fails(sandboxes.create({ ...spec, env: { A: 'c' } }, { idempotencyKey: 'the-first' }), 'conflict', 409)
  await first.kill()
})
await check('sandbox: list', async () => {
  assert.deepEqual((await all(sandboxes.list({ label: ['made=here'], state: ['running'] }))).map((b) => b.id), [box.id])
})
await check('sandbox: extend', async () => {
  const before = Date.parse((await box.info()).expires_at)
  assert.ok(Date.parse((await box.extend(300_000)).expires_at) > before + 60_000)
})
await check('run: output and exit status', async () => {
  const run = await box.run({ argv: python('import os, sys; print(os.environ["A"], "ü"); print("err", file=sys.stderr); sys.exit(3)') })
  assert.deepEqual([run.stdout, run.stderr, run.outcome.kind, run.outcome.exit_code, run.truncated], ['b ü\n', 'err\n', 'exited', 3, false])
})
await check('run: its time is over', async () => {
  assert.equal((await box.run({ argv: ['sleep', '60'], timeout_ms: 200 })).outcome.kind, 'wall_clock')
})
await check('run: bytes that are no text', async () => {
  const events = await all(box.stream({ argv: python('import os; os.write(1, bytes(range(256)))') }))
  assert.deepEqual(Buffer.concat(events.filter((e) => e.output).map((e) => outputBytes(e.output))), Buffer.from([...Array(256).keys()]))
})
await check('stream: output comes while it runs', async () => {
  const seen = []
  let answered = false
  for await (const event of box.stream({ id: 'answering', argv: python('print("ready"); print(input())'), stdin: true })) {
    seen.push(event)
    if (!answered && text(seen) === 'ready\n') {
      answered = true
      await box.exec('answering').write('go on\n', { close: true })
    }
  }
  assert.deepEqual([seen[0].type, seen.at(-1).end?.outcome.exit_code, text(seen)], ['started', 0, 'ready\ngo on\n'])
})
await check('stream: one that breaks', async () => {
  const { fetcher, opened } = breaking(1, 7_000, 9_000)
  const shaky = createClient({ baseUrl, apiKey, fetch: fetcher }).sandboxes.open(box.id)
  const run = await shaky.run({ argv: python('import time\nfor i in range(2000):\n  print("line", i, "ü")\n  if i % 100 == 0: time.sleep(0.01)\nopen("runs", "a").write("x")') })
  assert.equal(run.stdout, lines)
  assert.ok(opened.length >= 4, JSON.stringify(opened))
  assert.equal(await box.files.readText('runs'), 'x') // it ran once
})
await check('stream: one that is left', async () => {
  const stop = new AbortController()
  const exec = await box.start({ argv: python('import time; print("begun"); time.sleep(300)') })
  const err = await rejects((async () => {
    for await (const event of exec.follow({ signal: stop.signal })) if (event.output) stop.abort()
  })(), Error)
  assert.equal(err.name, 'AbortError')
  assert.equal((await exec.info()).running, true)
  await exec.kill()
  const output = await exec.output()
  assert.deepEqual([output.stdout, output.outcome.kind], ['begun\n', 'cancelled'])
})
await check('exec: from an offset', async () => {
  const exec = await box.start({ argv: python('print("0123456789", end="")') })
  await exec.output()
  assert.equal(text(await all(exec.follow({ from: 4 }))), '456789')
})
await check('exec: signal', async () => {
  const exec = await box.start({ argv: ['sleep', '300'] })
  await exec.signal('SIGTERM')
  const { outcome } = await exec.output()
  assert.deepEqual([outcome.kind, outcome.signal], ['signalled', 'SIGTERM'])
  assert.ok((await box.execs()).some((e) => e.id === exec.id && !e.running))
})
await check('exec: a terminal', async () => {
  const exec = await box.start({ argv: python('import os; input(); print(os.get_terminal_size().columns)'), tty: { cols: 80, rows: 24 }, stdin: true })
  await exec.resize({ cols: 132, rows: 50 })
  await exec.write('\n')
  assert.match((await exec.output()).stdout, /132/)
})
await check('exec: the same id runs once', async () => {
  const run = { id: 'once', argv: python('open("once", "a").write("x")') }
  await (await box.start(run)).output()
  await (await box.start(run)).output()
  assert.equal(await box.files.readText('once'), 'x')
})
await check('files: write and read', async () => {
  const entry = await box.files.write('d/ü.txt', 'text ü', { mode: 0o755 })
  assert.deepEqual([entry.path, entry.mode, entry.kind], ['/workspace/d/ü.txt', 0o755, 'file'])
  assert.equal(await box.files.readText('d/ü.txt'), 'text ü')
  const big = Buffer.alloc(5 << 20, 'every byte ')
  await box.files.write('big', new Blob([big]).stream())
  assert.ok(big.equals(await box.files.read('big')))
  assert.ok(big.subarray(7, 107).equals(await box.files.read('big', { offset: 7, length: 100 })))
  await box.files.write('empty', '')
  assert.equal((await box.files.read('empty')).length, 0)
})
await check('files: list, move, remove', async () => {
  await box.files.makeDirectory('e/f')
  await box.files.move('d/ü.txt', 'e/f/g')
  assert.deepEqual((await box.files.list('e', { depth: 2 })).map((f) => f.path), ['/workspace/e/f', '/workspace/e/f/g'])
  assert.equal((await box.files.stat('e/f')).kind, 'directory')
  await box.files.remove('e')
  await fails(box.files.stat('e'), 'not_found', 404)
  await fails(box.files.read('d'), 'invalid', 400)
})
await check('files: a tar up and down', async () => {
  await box.files.upload(execFileSync('tar', ['-c', 'checks.mjs', 'run.mjs']), { dir: 'up' })
  const tar = Buffer.from(await new Response(await box.files.download({ dir: 'up', patterns: ['run.*'] })).arrayBuffer())
  assert.equal(execFileSync('tar', ['-t'], { input: tar }).toString(), 'run.mjs\n')
})
await check('sandbox: metrics', async () => {
  const { samples } = await box.metrics()
  assert.ok(samples.at(-1).usage.memory_bytes > 0)
})
await check('sandbox: kill', async () => {
  const killed = await box.kill()
  assert.equal(killed.outcome.kind, 'cancelled')
  await fails(box.run({ argv: ['true'] }), 'gone', 410)
  assert.equal((await box.kill()).id, box.id)
})
await check('sandbox: disposed of', async () => {
  let id
  {
    // "await using", which this version of Node.js has not yet
    const own = await sandboxes.create({ ttl_ms: 60_000 })
    id = own.id
    await own[Symbol.asyncDispose]()
  }
  assert.match((await sandboxes.open(id).info()).state, /^end/)
})
done()
