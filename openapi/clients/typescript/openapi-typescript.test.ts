// The types of openapi-typescript, with openapi-fetch on top of them.
import assert from "node:assert/strict";
import test from "node:test";
import createClient from "openapi-fetch";

import type { components, paths } from "./generated/openapi.js";
import { base64, baseUrl, isTwiceThePicture, keyHeaders, picture } from "./stack.js";

type Client = ReturnType<typeof createClient<paths>>;

// Each creates a job without waiting for it. `format: binary` is a string to
// openapi-typescript, so bytes go through a serializer of one's own.
const ways: Record<string, (client: Client) => Promise<components["schemas"]["JobWithBilling"] | undefined>> = {
  async raw(client) {
    const { data } = await client.POST("/upscale", {
      params: { query: { scale: 2 } },
      headers: { "Content-Type": "image/png" },
      body: "",
      bodySerializer: () => picture,
    });
    return data;
  },
  async form(client) {
    const { data } = await client.POST("/upscale", {
      body: { scale: 2 },
      bodySerializer(fields) {
        const form = new FormData();
        form.set("image", picture, "picture.png");
        form.set("scale", String((fields as { scale: number }).scale));
        return form;
      },
    });
    return data;
  },
  async JSON(client) {
    const { data } = await client.POST("/upscale", { body: { image_base64: base64, scale: 2 } });
    return data;
  },
};

for (const headers of keyHeaders) {
  for (const [way, create] of Object.entries(ways)) {
    test(`creates by ${way}, waits and downloads with ${Object.keys(headers)}`, async () => {
      const client = createClient<paths>({ baseUrl, headers });
      const created = await create(client);
      assert.equal(created?.billing.currency, "Point");
      assert.equal(created.billing.cost, 0.1);

      const path = { id: created.id };
      const waited = await client.GET("/jobs/{id}", { params: { path, query: { wait: 60 } } });
      assert.equal(waited.data?.status, "completed", JSON.stringify(waited));

      const result = await client.GET("/jobs/{id}/result", { params: { path }, parseAs: "blob" });
      assert.ok(result.data);
      await isTwiceThePicture(result.data);
    });
  }
}

test("an error is typed", async () => {
  const client = createClient<paths>({ baseUrl });
  const { data, error, response } = await client.GET("/me");
  assert.equal(data, undefined);
  assert.equal(response.status, 401);
  assert.equal(error?.error.code, "unauthorized");
});
