// One WebSocket to the gateway, kept alive: requests and answers, events, the server's questions, heartbeat, and coming
// back after it broke. It knows nothing of sessions; whoever wants to know that a new connection is up listens for it.
import type { GatewayEvent, OpenRequest, Params } from "./wire";

const HEARTBEAT_MS = 15_000;
const SILENT_MS = 45_000;
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 8_000;
const REFUSED_KEY = 4401;
const REFUSED_PAGE = 4403;

export type ConnectionState = "connecting" | "open" | "waiting" | "refused" | "closed";

export class RpcError extends Error {
  constructor(
    readonly code: number,
    message: string,
    readonly data?: any,
  ) {
    super(message);
  }
}

export class ConnectionLost extends Error {}

interface Pending {
  resolve(value: any): void;
  reject(error: Error): void;
}

export interface Listener {
  state(state: ConnectionState, detail: { reason?: string; retryAt?: number }): void;
  ready(epoch: string): void;
  event(event: GatewayEvent): void;
  request(request: OpenRequest): void;
}

export class Connection {
  private socket: WebSocket | null = null;
  private pending = new Map<number, Pending>();
  private lastId = 0;
  private attempts = 0;
  private heardAt = 0;
  private heartbeat = 0;
  private retry = 0;
  private stopped = false;

  constructor(
    private readonly key: string,
    private readonly listener: Listener,
  ) {}

  open(): void {
    window.addEventListener("online", this.retryNow);
    document.addEventListener("visibilitychange", this.retryNow);
    this.connect();
  }

  close(): void {
    this.stopped = true;
    window.removeEventListener("online", this.retryNow);
    document.removeEventListener("visibilitychange", this.retryNow);
    clearTimeout(this.retry);
    this.socket?.close(1000);
    this.lost();
    this.listener.state("closed", {});
  }

  readonly retryNow = (): void => {
    if (this.socket === null && !this.stopped && !document.hidden) {
      clearTimeout(this.retry);
      this.connect();
    }
  };

  call<Result = any>(method: string, params: Params = {}): Promise<Result> {
    const id = ++this.lastId;
    return new Promise((resolve, reject) => {
      if (!this.send({ jsonrpc: "2.0", id, method, params })) {
        reject(new ConnectionLost("not connected"));
        return;
      }
      this.pending.set(id, { resolve, reject });
    });
  }

  answer(id: string, result: unknown): boolean {
    return this.send({ jsonrpc: "2.0", id, result });
  }

  decline(id: string): boolean {
    return this.send({ jsonrpc: "2.0", id, error: { code: -32601, message: "not supported by this client" } });
  }

  private send(frame: object): boolean {
    if (this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(frame));
    return true;
  }

  private connect(): void {
    const url = new URL("api/ws", document.baseURI);
    url.protocol = url.protocol.replace("http", "ws");
    url.search = new URLSearchParams({ token: this.key }).toString();
    url.hash = "";
    const socket = new WebSocket(url);
    this.socket = socket;
    this.listener.state("connecting", {});
    socket.onmessage = (message) => {
      if (socket === this.socket) this.received(String(message.data));
    };
    socket.onclose = (event) => {
      if (socket === this.socket) this.closed(event);
    };
    this.watch(socket);
  }

  /** A socket that says nothing for too long is dead, whatever the browser thinks of it. */
  private watch(socket: WebSocket): void {
    this.heardAt = Date.now();
    clearInterval(this.heartbeat);
    this.heartbeat = window.setInterval(() => {
      if (socket !== this.socket) return;
      if (Date.now() - this.heardAt > SILENT_MS) {
        socket.onclose = null;
        socket.close();
        this.closed({ code: 1006, reason: "" });
      } else if (socket.readyState === WebSocket.OPEN) {
        this.call("gateway.ping").catch(() => undefined);
      }
    }, HEARTBEAT_MS);
  }

  private received(text: string): void {
    this.heardAt = Date.now();
    let frame: any;
    try {
      frame = JSON.parse(text);
    } catch {
      return;
    }
    if (frame.method === "event") {
      const event = frame.params as GatewayEvent;
      if (event.type === "gateway.ready") {
        this.attempts = 0;
        this.listener.state("open", {});
        this.listener.ready(String(event.payload?.replay_epoch ?? ""));
      } else {
        this.listener.event(event);
      }
    } else if (frame.method !== undefined && frame.id !== undefined) {
      this.listener.request({ id: frame.id, method: frame.method, params: frame.params ?? {} });
    } else {
      const waiting = this.pending.get(frame.id);
      this.pending.delete(frame.id);
      if (frame.error) {
        waiting?.reject(new RpcError(frame.error.code, frame.error.message, frame.error.data));
      } else {
        waiting?.resolve(frame.result);
      }
    }
  }

  private closed(event: { code: number; reason: string }): void {
    this.lost();
    if (this.stopped) return;
    if (event.code === REFUSED_KEY || event.code === REFUSED_PAGE) {
      this.stopped = true;
      this.listener.state("refused", { reason: event.code === REFUSED_KEY ? "key" : event.reason });
      return;
    }
    const longest = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.attempts);
    this.attempts += 1;
    // Spread out, so that many pages do not fall upon a server that has just come back.
    const pause = longest * (0.5 + Math.random() / 2);
    this.retry = window.setTimeout(() => this.connect(), pause);
    this.listener.state("waiting", { retryAt: Date.now() + pause });
  }

  private lost(): void {
    this.socket = null;
    clearInterval(this.heartbeat);
    const pending = [...this.pending.values()];
    this.pending.clear();
    for (const one of pending) one.reject(new ConnectionLost("the connection was lost"));
  }
}
