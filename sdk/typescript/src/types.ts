import type { components } from './schema.js'

/** Every message of the contract, by its name there. */
export type Schemas = components['schemas']

/** What every call takes: a signal that ends it, with all its repetitions. */
export interface CallOptions {
  signal?: AbortSignal | undefined
}

/** Contents that can be sent. A stream is sent once. */
export type Contents = string | Uint8Array | Blob | ReadableStream<Uint8Array>
