// A refusal is sent while the client still uploads: it must get to see it, and
// not a connection that was reset.
import assert from "node:assert/strict";
import { request } from "node:http";
import test from "node:test";

import { baseUrl, key } from "./stack.js";

const tooLarge = new Blob([new Uint8Array(48 << 20)], { type: "image/png" });

const refusals = [
  { code: "file_too_large", status: 413, key },
  { code: "invalid_key", status: 401, key: "pictor_nonsense" },
];

for (const want of refusals) {
  test(`fetch sees ${want.code} before its upload ends`, async () => {
    const response = await fetch(`${baseUrl}/upscale`, { method: "POST", headers: { "X-Api-Key": want.key }, body: tooLarge });
    const answer = (await response.json()) as { error: { code: string } };
    assert.deepEqual([response.status, answer.error.code], [want.status, want.code]);
  });

  test(`node:http sees ${want.code} before its upload ends`, async () => {
    const body = Buffer.from(await tooLarge.arrayBuffer());
    const answer = await new Promise<[number | undefined, string]>((resolve, reject) => {
      const headers = { "X-Api-Key": want.key, "Content-Type": "image/png", "Content-Length": body.length };
      const sent = request(`${baseUrl}/upscale`, { method: "POST", headers }, (response) => {
        let text = "";
        response.setEncoding("utf8");
        response.on("data", (part: string) => (text += part));
        response.on("end", () => resolve([response.statusCode, text]));
        response.on("error", reject);
      });
      sent.on("error", reject);
      sent.end(body);
    });
    const refusal = JSON.parse(answer[1]) as { error: { code: string } };
    assert.deepEqual([answer[0], refusal.error.code], [want.status, want.code]);
  });
}
