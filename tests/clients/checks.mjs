// One line of JSON for each check, for the Go test that runs this, and a last one
// with their number: without it, the run was cut.
import assert from 'node:assert/strict'

export { assert }

let count = 0
const only = process.env.CHECK_ONLY

export async function check(name, run) {
  if (only && !name.includes(only)) return
  count++
  const begun = performance.now()
  let failure
  try {
    await withTimeout(run(), 60_000)
  } catch (err) {
    failure = String(err?.stack ?? err)
  }
  const ms = Math.round(performance.now() - begun)
  console.log(JSON.stringify({ check: name, ok: failure === undefined, ms, failure }))
}

export function done() {
  console.log(JSON.stringify({ done: count }))
  process.exit(0)
}

// rejects expects an error of a class, with a word in its message if one is given.
export async function rejects(promise, kind, word) {
  let err
  try {
    await promise
  } catch (e) {
    err = e
  }
  assert.ok(err, 'it did not fail')
  assert.ok(err instanceof kind, `${err?.name}: ${err?.message}, not ${kind.name}`)
  if (word) assert.match(err.message, new RegExp(word, 'i'))
  return err
}

export function withTimeout(promise, ms) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not over after ${ms} ms`)), ms)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

// eventually waits until something holds.
export async function eventually(what, holds) {
  const until = performance.now() + 20_000
  while (!(await holds())) {
    if (performance.now() > until) throw new Error(`never: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}
