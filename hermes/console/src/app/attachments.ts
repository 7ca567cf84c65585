// Pictures and files that go with the next message. They stay in the page until it is sent: nothing waits on the server
// for a message that may never come.
import { call } from "./gateway";
import * as store from "./store";

const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const MOST_BYTES = 25 * 1024 * 1024;
const MOST = 20;

export interface Attachment {
  id: number;
  name: string;
  size: number;
  isImage: boolean;
  /** What it holds, as a data URL: what the server takes, and what the page shows of a picture. */
  data: string;
}

let lastId = 0;

/** Take files that were picked, pasted or dropped. What cannot be taken is told. */
export async function attach(files: Iterable<File>): Promise<void> {
  for (const file of files) {
    if (store.attachments.value.length >= MOST) {
      store.toast(`At most ${MOST} files go with one message.`, "error");
      return;
    }
    if (file.size > MOST_BYTES) {
      store.toast(`${file.name} is larger than 25 MB.`, "error");
      continue;
    }
    try {
      const data = await read(file);
      lastId += 1;
      const one = { id: lastId, name: file.name || "pasted", size: file.size, isImage: IMAGES.has(file.type), data };
      store.attachments.value = [...store.attachments.value, one];
    } catch {
      store.toast(`${file.name} cannot be read; folders cannot be attached.`, "error");
    }
  }
}

export function detach(id: number): void {
  store.attachments.value = store.attachments.value.filter((one) => one.id !== id);
}

/** Hand them to the session; gives the text of the prompt, with the files named in it. Raises what the server answers. */
export async function upload(sessionId: string, text: string, given: Attachment[]): Promise<string> {
  const queued: string[] = [];
  const references: string[] = [];
  try {
    for (const one of given) {
      if (one.isImage) {
        const content = one.data.slice(one.data.indexOf(",") + 1);
        const image = await call("image.attach_bytes", { session_id: sessionId, content_base64: content, filename: one.name });
        queued.push(image.path);
      } else {
        const file = await call("file.attach", { session_id: sessionId, data_url: one.data, name: one.name });
        references.push(file.ref_text);
      }
    }
  } catch (error) {
    // What is queued already must not go with some other message.
    for (const path of queued) await call("image.detach", { session_id: sessionId, path }).catch(() => undefined);
    throw error;
  }
  return [text, references.join("\n")].filter((part) => part).join("\n\n");
}

function read(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(withType(String(reader.result)));
    reader.onerror = () => reject(reader.error ?? new Error("unreadable"));
    reader.readAsDataURL(file);
  });
}

/** An empty file has a URL without a payload, and a file of an unknown kind one without a type. */
function withType(url: string): string {
  return url.startsWith("data:;") ? `data:application/octet-stream;${url.slice(6)}` : url.includes(",") ? url : "data:application/octet-stream;base64,";
}
