// What the round trips share: the running stack, a picture, and what its
// enlargement must be.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

function env(name: string): string {
  const value = process.env[name];
  assert.ok(value, `${name} is not set: "go tool task clients" sets it`);
  return value;
}

export const baseUrl = env("PICTOR_BASE_URL");
export const key = env("PICTOR_API_KEY");

/** The two ways to send a key. */
export const keyHeaders: Record<string, string>[] = [{ Authorization: `Bearer ${key}` }, { "X-Api-Key": key }];

const bytes = readFileSync(env("PICTOR_PICTURE"));
export const picture = new Blob([bytes], { type: "image/png" });
export const base64 = bytes.toString("base64");

/** Width and height of a PNG, which its header says. */
function sizeOfPNG(png: Buffer): [number, number] {
  assert.equal(png.subarray(1, 4).toString(), "PNG");
  return [png.readUInt32BE(16), png.readUInt32BE(20)];
}

/** Fails when result is not the picture in twice its size. */
export async function isTwiceThePicture(result: Blob): Promise<void> {
  const [width, height] = sizeOfPNG(bytes);
  assert.deepEqual(sizeOfPNG(Buffer.from(await result.arrayBuffer())), [2 * width, 2 * height]);
}
