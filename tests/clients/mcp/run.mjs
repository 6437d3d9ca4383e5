// The MCP server through two clients that are not ours, unmodified: the command
// line of the inspector, over standard input and output and over HTTP, and the
// scenarios of the conformance suite that need no tools, resources or prompts of
// its own.
import { execFile, spawn } from 'node:child_process'
import http from 'node:http'
import { once } from 'node:events'
import { mkdtempSync } from 'node:fs'
import { join } from 'node:path'
import { assert, check, done } from './checks.mjs'

const { AGENTDOCK, AGENTDOCK_URL, AGENTDOCK_API_KEY } = process.env
const scratch = mkdtempSync(join(process.cwd(), 'home-'))

function node(script, args) {
  return new Promise((resolve) => {
    const env = { PATH: process.env.PATH, HOME: scratch, AGENTDOCK_URL }
    execFile(process.execPath, [script, ...args], { env, maxBuffer: 64 << 20 }, (err, stdout, stderr) => {
      resolve({ code: err?.code ?? 0, stdout, stderr })
    })
  })
}

const inspector = 'node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js'

// inspect runs one session of the inspector over standard input and output.
function inspect(args, key = AGENTDOCK_API_KEY) {
  const env = ['-e', `AGENTDOCK_URL=${AGENTDOCK_URL}`, '-e', `AGENTDOCK_API_KEY=${key}`]
  return node(inspector, ['--cli', ...env, '--format', 'json', ...args, '--', AGENTDOCK, 'mcp'])
}

async function tool(name, args, key) {
  return resultOf(await inspect(call(name, args), key))
}

const call = (name, args) => ['--method', 'tools/call', '--tool-name', name, '--tool-args-json', JSON.stringify(args)]

function resultOf(ran) {
  let result
  try {
    const said = JSON.parse(ran.stdout)
    result = said.result ?? said
  } catch {
    assert.fail(`exit ${ran.code}: ${ran.stdout}\n${ran.stderr}`)
  }
  return result
}

async function works(name, args, key) {
  const result = await tool(name, args, key)
  assert.ok(!result.isError, result.content?.[0]?.text)
  assert.deepEqual(JSON.parse(result.content[0].text), result.structuredContent)
  return result.structuredContent
}

async function fails(name, args, key) {
  const result = await tool(name, args, key)
  assert.equal(result.isError, true, JSON.stringify(result))
  const { text } = result.content[0]
  assert.match(text, /^cannot [^\n]+: [^\n]+; [^\n]+$/)
  return text
}

let sandbox
await check('inspector: tools and their schemas are portable', async () => {
  const ran = await inspect(['--method', 'tools/list', '--strict'])
  assert.equal(ran.code, 0, ran.stderr)
  assert.equal(resultOf(ran).tools.length, 10)
})
await check('inspector: sandbox_create', async () => {
  const made = await works('sandbox_create', { keep: true, labels: { suite: 'mcp' }, ttl_seconds: 600 })
  assert.match(made.sandbox_id, /^[0-9a-v]{26}$/)
  assert.equal(made.state, 'running')
  sandbox = made.sandbox_id
})
await check('inspector: a sandbox that is not to be kept ends with the session', async () => {
  const made = await works('sandbox_create', {})
  const { sandboxes } = await works('sandbox_list', { all: true })
  const states = Object.fromEntries(sandboxes.map((s) => [s.sandbox_id, s.state]))
  assert.equal(states[made.sandbox_id], 'ended')
  assert.equal(states[sandbox], 'running')
})
await check('inspector: run_command', async () => {
  const argv = ['python3', '-c', 'import sys; print("ü", input()); sys.stderr.write("\\x1b[31mred"); sys.exit(3)']
  const ran = await works('run_command', { sandbox_id: sandbox, argv, stdin: 'in\n' })
  assert.equal(ran.outcome, 'exited')
  assert.equal(ran.exit_code, 3)
  assert.equal(ran.stdout, 'ü in\n')
  assert.equal(ran.stderr, '␛[31mred')
  assert.equal(ran.altered, true)
  assert.equal(ran.truncated, false)
})
await check('inspector: run_code keeps variables between sessions', async () => {
  const first = await works('run_code', { sandbox_id: sandbox, code: 'x = 6\nprint("set")' })
  assert.equal(first.outcome, 'finished')
  assert.equal(first.stdout, 'set\n')
  const second = await works('run_code', { sandbox_id: sandbox, code: 'x * 7' })
  assert.deepEqual(second.results, ['42'])
  assert.equal(second.execution, 2)
})
await check('inspector: write_file and read_file', async () => {
  const entry = await works('write_file', { sandbox_id: sandbox, path: 'new/hello.txt', content: 'a <b> ü\r\n' })
  assert.equal(entry.path, '/workspace/new/hello.txt')
  assert.equal(entry.bytes, 10)
  const file = await works('read_file', { sandbox_id: sandbox, path: 'new/hello.txt' })
  assert.deepEqual([file.content, file.encoding, file.size, file.truncated], ['a <b> ü\r\n', 'text', 10, false])
})
await check('inspector: list_files', async () => {
  const { entries, truncated } = await works('list_files', { sandbox_id: sandbox, path: 'new' })
  assert.deepEqual(entries.map((e) => [e.path, e.kind, e.bytes]).sort(), [
    ['/workspace/new/hello.txt', 'file', 10],
  ])
  assert.equal(truncated, false)
})
await check('inspector: submit_job and get_job', async () => {
  const { job_id } = await works('submit_job', { commands: [['python3', '-c', 'print("from a job")'], ['false']] })
  const job = await works('get_job', { job_id, wait_seconds: 60 })
  assert.equal(job.state, 'failed')
  assert.equal(job.exit_code, 1)
  assert.equal(job.stdout, 'from a job\n')
  assert.deepEqual(job.steps.map((s) => s.exit_code), [0, 1])
})
await check('inspector: a wrong key', async () => {
  assert.match(await fails('sandbox_list', {}, 'adk_wrong'), /AGENTDOCK_API_KEY/)
})

// Over HTTP.
const server = spawn(AGENTDOCK, ['mcp', '--listen', '127.0.0.1:0'], { env: { PATH: process.env.PATH, HOME: scratch, AGENTDOCK_URL } })
let said = ''
const serves = new Promise((resolve, reject) => {
  server.stderr.on('data', (data) => {
    said += data
    const m = said.match(/serves on (\S+);/)
    if (m) resolve(m[1])
  })
  server.on('exit', (code) => reject(new Error(`exit ${code}: ${said}`)))
})
const url = await serves

await check('inspector over HTTP: run_command', async () => {
  const args = ['--cli', '--transport', 'http', '--server-url', url, '--header', `Authorization: Bearer ${AGENTDOCK_API_KEY}`, '--format', 'json']
  const ran = await node(inspector, [...args, ...call('run_command', { sandbox_id: sandbox, argv: ['id', '-un'] })])
  assert.equal(resultOf(ran).structuredContent?.stdout, 'agent\n', ran.stdout + ran.stderr)
})
await check('inspector over HTTP: without a key', async () => {
  const ran = await node(inspector, ['--cli', '--transport', 'http', '--server-url', url, '--stored-auth-only', '--format', 'json', '--method', 'tools/list'])
  assert.notEqual(ran.code, 0, ran.stdout)
})
await check('inspector: sandbox_kill', async () => {
  assert.equal((await works('sandbox_kill', { sandbox_id: sandbox })).state, 'ended')
})

// The suite has no way to send a key, so one is put into its requests, which go on
// as they are otherwise.
const keyed = http.createServer((request, response) => {
  const { hostname: host, port } = new URL(url)
  const headers = { ...request.headers, authorization: `Bearer ${AGENTDOCK_API_KEY}` }
  const on = http.request({ host, port, path: request.url, method: request.method, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers)
    answer.pipe(response)
  })
  on.on('error', () => response.destroy())
  response.on('close', () => on.destroy())
  request.pipe(on)
})
keyed.listen(0, '127.0.0.1')
await once(keyed, 'listening')
const conformance = await node('node_modules/@modelcontextprotocol/conformance/dist/index.js', [
  'server', '--url', `http://127.0.0.1:${keyed.address().port}/mcp`, '-o', mkdtempSync(join(scratch, 'results-')),
])
for (const scenario of ['server-initialize', 'logging-set-level', 'ping', 'tools-list', 'server-sse-multiple-streams', 'resources-list',
  'prompts-list', 'dns-rebinding-protection']) {
  await check(`conformance: ${scenario}`, async () => {
    assert.match(conformance.stdout, new RegExp(`✓ ${scenario}: [1-9]\\d* passed, 0 failed`), conformance.stdout.slice(-3000) + conformance.stderr)
  })
}
keyed.closeAllConnections()
keyed.close()

await check('the server over HTTP ends in order', async () => {
  const ended = once(server, 'exit')
  server.kill('SIGTERM')
  const [code] = await ended
  assert.equal(code, 0, said)
})
done()
