// The client of @hey-api/openapi-ts.
import assert from "node:assert/strict";
import test from "node:test";

import { type Client, createClient, createConfig, formDataBodySerializer } from "./generated/hey-api/client/index.js";
import { getJob, getJobResult, getMe, upscale } from "./generated/hey-api/index.js";
import { base64, baseUrl, isTwiceThePicture, keyHeaders, picture } from "./stack.js";

// Each creates a job without waiting for it. Only the JSON body has a type in
// this client, so the others are sent with `as never`.
const ways = {
  raw: (client: Client) =>
    upscale({
      client,
      query: { scale: 2 },
      headers: { "Content-Type": "image/png" } as never,
      body: picture as never,
      bodySerializer: null,
    }),
  form: (client: Client) =>
    upscale({
      client,
      headers: { "Content-Type": null } as never,
      body: { image: picture, scale: 2 } as never,
      ...formDataBodySerializer,
    }),
  JSON: (client: Client) => upscale({ client, body: { image_base64: base64, scale: 2 } }),
};

for (const headers of keyHeaders) {
  for (const [way, create] of Object.entries(ways)) {
    test(`creates by ${way}, waits and downloads with ${Object.keys(headers)}`, async () => {
      const client = createClient(createConfig({ baseUrl, headers }));
      const created = await create(client);
      assert.equal(created.data?.billing.cost, 0.1, JSON.stringify(created.error));

      const path = { id: created.data.id };
      const waited = await getJob({ client, path, query: { wait: 60 } });
      assert.equal(waited.data?.status, "completed", JSON.stringify(waited.data));

      const result = await getJobResult({ client, path, parseAs: "blob" });
      assert.ok(result.data instanceof Blob);
      await isTwiceThePicture(result.data);
    });
  }
}

test("an error is typed", async () => {
  const { error, response } = await getMe({ client: createClient(createConfig({ baseUrl })) });
  assert.equal(response?.status, 401);
  assert.equal(error?.error.code, "unauthorized");
});
