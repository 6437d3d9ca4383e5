// The SDK "@e2b/code-interpreter", unmodified: a persistent Python in a sandbox.
import { NotFoundError, Sandbox, SandboxError, TimeoutError } from '@e2b/code-interpreter'
import { assert, check, done, eventually, rejects } from './checks.mjs'

let box = await Sandbox.create({ timeoutMs: 300_000 })

await check('the template', async () => assert.equal((await box.getInfo()).templateId, 'code-interpreter-v1'))
await check('a result', async () => {
  const e = await box.runCode('x = 20\nx + 1')
  assert.deepEqual([e.text, e.error, e.executionCount], ['21', undefined, 1])
})
await check('what was set is still there', async () => assert.equal((await box.runCode('x * 2')).text, '40'))
await check('output', async () => {
  const e = await box.runCode('import sys\nprint("out ü 🚀")\nprint("err", file=sys.stderr)')
  assert.deepEqual([e.logs.stdout.join(''), e.logs.stderr.join('')], ['out ü 🚀\n', 'err\n'])
  assert.equal(e.text, undefined)
})
await check('output of programs', async () => {
  const e = await box.runCode('import subprocess\nprint("first")\nsubprocess.run(["echo", "second"])\nNone')
  assert.equal(e.logs.stdout.join(''), 'first\nsecond\n')
})
await check('much output of many characters', async () => {
  const e = await box.runCode('print("é世🚀" * 200_000, end="")', { timeoutMs: 60_000 })
  assert.equal(e.logs.stdout.join(''), 'é世🚀'.repeat(200_000))
})
await check('streaming', async () => {
  const seen = []
  const e = await box.runCode('import time\nfor i in range(3):\n  print(i)\n  time.sleep(0.05)', { onStdout: (m) => seen.push(m.line) })
  assert.equal(seen.join(''), '0\n1\n2\n')
  assert.ok(seen.length > 1)
  assert.equal(e.logs.stdout.join(''), '0\n1\n2\n')
})
await check('an error', async () => {
  const e = await box.runCode('def f():\n  return 1 / 0\nf()')
  assert.deepEqual([e.error.name, e.error.value], ['ZeroDivisionError', 'division by zero'])
  assert.match(e.error.traceback, /line 2, in f/)
})
await check('a syntax error', async () => assert.equal((await box.runCode('x = = 1')).error.name, 'SyntaxError'))
await check('exit is an error, and not the end', async () => {
  assert.equal((await box.runCode('raise SystemExit(3)')).error.name, 'SystemExit')
  assert.equal((await box.runCode('x')).text, '20')
})
await check('await at the top', async () => {
  assert.equal((await box.runCode('import asyncio\nawait asyncio.sleep(0.01)\n"slept"')).text, "'slept'")
})
await check('several forms of a result', async () => {
  const e = await box.runCode('class P:\n  def _repr_html_(self): return "<b>ü</b>"\n  def _repr_png_(self): return b"png"\n  def __repr__(self): return "P"\nP()')
  assert.deepEqual([e.results[0].text, e.results[0].html, e.results[0].png, e.results[0].isMainResult], ['P', '<b>ü</b>', 'cG5n', true])
})
await check('display', async () => {
  const e = await box.runCode('display(1)\ndisplay("two")\n3')
  assert.deepEqual(e.results.map((r) => [r.text, !!r.isMainResult]), [['1', false], ["'two'", false], ['3', true]])
})
await check('variables of one execution', async () => {
  assert.equal((await box.runCode('import os\nos.environ["ONCE"]', { envs: { ONCE: 'yes' } })).text, "'yes'")
  assert.equal((await box.runCode('os.environ.get("ONCE", "no")')).text, "'no'")
})
await check('files and commands see the same', async () => {
  await box.runCode('open("from-code", "w").write("hello")')
  assert.equal(await box.files.read('from-code'), 'hello')
  assert.equal((await box.commands.run('cat from-code')).stdout, 'hello')
})
await check('input is at its end', async () => assert.equal((await box.runCode('input()')).error.name, 'EOFError'))
await check('contexts are apart', async () => {
  await box.files.makeDir('elsewhere')
  const c = await box.createCodeContext({ cwd: '/workspace/elsewhere', language: 'python' })
  assert.equal((await box.runCode('x = "mine"\nimport os\nos.getcwd()', { context: c })).text, "'/workspace/elsewhere'")
  assert.equal((await box.runCode('x')).text, '20')
  assert.equal((await box.runCode('x', { context: c })).text, "'mine'")
  const all = await box.listCodeContexts()
  assert.ok(all.some((k) => k.id === c.id && k.cwd === '/workspace/elsewhere' && k.language === 'python'))
  await box.removeCodeContext(c)
  assert.ok(!(await box.listCodeContexts()).some((k) => k.id === c.id))
})
await check('restart forgets', async () => {
  const c = await box.createCodeContext()
  await box.runCode('y = 1', { context: c })
  await box.restartCodeContext(c)
  assert.equal((await box.runCode('y', { context: c })).error.name, 'NameError')
  await box.removeCodeContext(c)
})
await check('a context that does not exist', () => rejects(box.runCode('1', { context: { id: 'no-such' } }), NotFoundError))
await check('another language is refused', () => rejects(box.runCode('1', { language: 'r' }), SandboxError, '501'))
await check('a time limit interrupts, and the variables stay', async () => {
  await rejects(box.runCode('import time\ntime.sleep(60)', { timeoutMs: 500 }), TimeoutError)
  assert.equal((await box.runCode('x')).text, '20')
})
await check('a loop without end is interrupted too', async () => {
  await rejects(box.runCode('while True: pass', { timeoutMs: 500 }), TimeoutError)
  assert.equal((await box.runCode('x')).text, '20')
})
await check('code that ends the interpreter', async () => {
  const e = await box.runCode('import os\nos._exit(9)')
  assert.equal(e.error.name, 'KernelError')
  assert.match(e.error.value, /exited 9/)
  assert.equal((await box.runCode('"x" in globals()')).text, 'False')
})
await check('two executions of one context wait for each other', async () => {
  const [a, b] = await Promise.all([
    box.runCode('n = globals().get("n", 0) + 1\nimport time\ntime.sleep(0.2)\nn'),
    box.runCode('n = globals().get("n", 0) + 1\nimport time\ntime.sleep(0.2)\nn'),
  ])
  assert.deepEqual([a.text, b.text].sort(), ['1', '2'])
})
await check('100 MB in a variable', async () => {
  await box.runCode('held = bytearray(100_000_000)')
  assert.equal((await box.runCode('len(held)')).text, '100000000')
})
await check('100 MB in a variable over a pause', async () => {
  const digest = 'hashlib.sha256(held).hexdigest()'
  const before = (await box.runCode(`import hashlib, os\nheld = os.urandom(100_000_000)\n${digest}`)).text
  const times = {}
  const timed = async (what, f) => { const begun = Date.now(); const r = await f(); times[what] = Date.now() - begun; return r }
  await timed('pause', () => box.pause())
  assert.equal(await box.isRunning(), false)
  box = await timed('connect', () => Sandbox.connect(box.sandboxId))
  assert.equal((await timed('first cell', () => box.runCode(digest))).text, before)
  console.error('ms:', JSON.stringify(times))
})
await check('without the token nothing runs', async () => {
  const res = await fetch(`${process.env.E2B_SANDBOX_URL}/execute`, {
    method: 'POST', headers: { 'E2b-Sandbox-Id': box.sandboxId, 'E2b-Sandbox-Port': '49999' }, body: '{"code":"1"}',
  })
  assert.equal(res.status, 401)
})
await check('a dead sandbox', async () => {
  await box.kill()
  await rejects(box.runCode('1'), TimeoutError)
})
done()
