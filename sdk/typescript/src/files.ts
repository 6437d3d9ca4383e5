import { type Transport, sending, signal, value } from './transport.js'
import type { CallOptions, Contents, Schemas } from './types.js'

/**
 * The files of a live sandbox. Paths are absolute, or relative to the workspace.
 * What comes out of a sandbox is hostile.
 */
export class Files {
  constructor(
    private readonly transport: Transport,
    private readonly sandboxId: string,
  ) {}

  /** Lists a directory; with a depth, also what is below it. */
  async list(path: string, options: CallOptions & { depth?: number } = {}): Promise<Schemas['FileEntry'][]> {
    const query = { path, ...(options.depth ? { depth: options.depth } : {}) }
    return (await value(this.transport.api.GET('/v1/sandboxes/{sandbox_id}/files', { params: this.params(query), ...signal(options) }))).entries
  }

  /** Says what is at a path. A symlink there is not followed. */
  stat(path: string, options: CallOptions = {}): Promise<Schemas['FileEntry']> {
    return value(this.transport.api.GET('/v1/sandboxes/{sandbox_id}/files/stat', { params: this.params({ path }), ...signal(options) }))
  }

  /** Reads a regular file, or a part of it, into memory. */
  async read(path: string, options: CallOptions & { offset?: number; length?: number } = {}): Promise<Uint8Array> {
    const { offset = 0, length = 0 } = options
    const call = this.transport.api.GET('/v1/sandboxes/{sandbox_id}/files/content', {
      params: this.params({ path, offset, length }),
      parseAs: 'arrayBuffer',
      ...signal(options),
    })
    return new Uint8Array((await value(call)) ?? 0)
  }

  /** Reads a regular file as UTF-8. */
  async readText(path: string, options: CallOptions = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(path, options))
  }

  /** Makes or replaces a regular file, and the directories above it. It is replaced as a whole or not at all. */
  write(path: string, contents: Contents, options: CallOptions & { mode?: number } = {}): Promise<Schemas['FileEntry']> {
    const query = { path, ...(options.mode === undefined ? {} : { mode: options.mode }) }
    return value(
      this.transport.api.PUT('/v1/sandboxes/{sandbox_id}/files/content', {
        params: this.params(query),
        ...sending(contents, 'application/octet-stream'),
        ...signal(options),
      }),
    )
  }

  /** Makes a directory and its parents. */
  makeDirectory(path: string, options: CallOptions = {}): Promise<Schemas['FileEntry']> {
    return value(this.transport.api.POST('/v1/sandboxes/{sandbox_id}/files/directories', { params: { path: this.place }, body: { path }, ...signal(options) }))
  }

  /** Gives a file or a directory another name. */
  move(from: string, to: string, options: CallOptions = {}): Promise<Schemas['FileEntry']> {
    return value(this.transport.api.POST('/v1/sandboxes/{sandbox_id}/files/move', { params: { path: this.place }, body: { from, to }, ...signal(options) }))
  }

  /** Removes a file, or a directory and everything in it. */
  async remove(path: string, options: CallOptions = {}): Promise<void> {
    await value(this.transport.api.DELETE('/v1/sandboxes/{sandbox_id}/files', { params: this.params({ path }), ...signal(options) }))
  }

  /** Unpacks a tar below a directory of the workspace, inside the sandbox. */
  async upload(tar: Contents, options: CallOptions & { dir?: string } = {}): Promise<void> {
    await value(
      this.transport.api.PUT('/v1/sandboxes/{sandbox_id}/archive', {
        params: this.params({ dir: options.dir ?? '' }),
        ...sending(tar, 'application/x-tar'),
        ...signal(options),
      }),
    )
  }

  /** Files of the workspace as a tar: those below a directory that match a pattern, or all. */
  async download(options: CallOptions & { dir?: string; patterns?: string[] } = {}): Promise<ReadableStream<Uint8Array>> {
    const call = this.transport.api.GET('/v1/sandboxes/{sandbox_id}/archive', {
      params: this.params({ dir: options.dir ?? '', pattern: options.patterns ?? [] }),
      parseAs: 'stream',
      ...signal(options),
    })
    const body = await value(call)
    if (!body) throw new Error('cannot download the files: there was no answer')
    return body
  }

  private params<Q extends object>(query: Q) {
    return { path: this.place, query }
  }

  private get place() {
    return { sandbox_id: this.sandboxId }
  }
}
