"""What Schemathesis must know of Pictor beyond the document: which bytes are
images, which jobs there are, and whose key reads them.

An account may run five jobs at a time, so the requests go round many accounts.
PICTOR_KEYS has a key of each; PICTOR_SEEN is the file that lists, at the end,
the answers that came.
"""

import atexit
import base64
import itertools
import json
import os
import pathlib
import urllib.parse
import urllib.request

import schemathesis
from hypothesis import strategies as st

BASE_URL = os.environ["PICTOR_BASE_URL"]
KEYS = os.environ["PICTOR_KEYS"].split()

# A blue dot, drawn for this test, in each of the three types.
images = [path.read_bytes() for path in sorted(pathlib.Path(__file__).parent.glob("images/*"))]
png = next(image for image in images if image.startswith(b"\x89PNG"))
# Its header is sound and the rest is missing: it is charged, fails and is refunded.
broken = png[:60]


def call(key, path, body=None):
    """Sends a request that must succeed; returns the headers and the bytes of its answer."""
    request = urllib.request.Request(BASE_URL + path, body, {"X-Api-Key": key, "Content-Type": "image/png"})
    with urllib.request.urlopen(request, timeout=90) as answer:
        return answer.headers, answer.read()


def make_job(key, image, status):
    job = json.loads(call(key, "/upscale?wait=60", image)[1])
    assert job["status"] == status, job
    return job


# Jobs to read. There is a key for each, for only its account sees it.
done = [make_job(key, png, "completed") for key in KEYS[:3]]
failed = make_job(KEYS[0], broken, "failed")
owner = {job["id"]: key for job, key in zip(done, KEYS)} | {failed["id"]: KEYS[0]}
etag = call(KEYS[0], f"/jobs/{done[0]['id']}/result")[0]["ETag"]

image_bytes = st.sampled_from(images * 3 + [broken]) | st.binary()
base64_text = image_bytes.map(lambda image: base64.b64encode(image).decode())

# Formats that say more than the document's `type: string`. Schemathesis gets
# them in its copy of the document, so that it can shrink and spoil them, too.
formats = {
    "pictor-base64": base64_text | base64_text.map("data:image/png;base64,".__add__) | st.text(),
    "pictor-url": st.sampled_from(
        [job["result_url"] for job in done] + [BASE_URL + "/tasks", "http://127.0.0.2/", "ftp://127.0.0.1/", ""]
    ),
    # Some of them come again, and then with other bodies.
    "pictor-key": st.sampled_from(["one", "two", "three"]) | st.uuids().map(str),
    "pictor-range": st.sampled_from(["bytes=0-9", "bytes=-5", "bytes=20-", "bytes=999999-", "bytes=0-1,3-4", "lines=1"]),
    "pictor-etag": st.sampled_from([etag, '"another"', "*"]),
    "binary": image_bytes,
    "uuid": st.sampled_from(list(owner)) | st.uuids().map(str),
}
for name, strategy in formats.items():
    schemathesis.openapi.format(name, strategy)
for media_type in ("image/png", "image/jpeg", "image/webp"):
    schemathesis.openapi.media_type(media_type, image_bytes)


@schemathesis.hook
def before_load_schema(context, document):
    for body in ("RemoveBgInput", "UpscaleInput"):
        properties = document["components"]["schemas"][body]["properties"]
        properties["image_url"]["format"] = "pictor-url"
        properties["image_base64"]["format"] = "pictor-base64"
    document["components"]["parameters"]["IdempotencyKey"]["schema"]["format"] = "pictor-key"
    for parameter in document["paths"]["/jobs/{id}/result"]["get"]["parameters"]:
        match parameter.get("name"):
            case "Range":
                parameter["schema"]["format"] = "pictor-range"
            case "If-None-Match":
                parameter["schema"]["format"] = "pictor-etag"
    for path in ("/remove-bg", "/upscale"):
        # They name a foreign host.
        del document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["examples"]


@schemathesis.hook
def filter_body(context, body):
    """Leaves out what no client can mean, and any host but this machine."""
    if not isinstance(body, dict):
        return True
    # The head of a form's part cannot carry control characters in a name.
    if not all(name.isprintable() for name in body):
        return False
    # Beside an image the alias counts for nothing, whatever it holds: browsers
    # send an empty part for a file that nobody chose.
    if "image" in body and "file" in body:
        return False
    url = body.get("image_url")
    try:
        host = urllib.parse.urlsplit(url).hostname if isinstance(url, str) else None
    except ValueError:
        host = None
    return host is None or host.startswith("127.")


turn = itertools.cycle(KEYS)


@schemathesis.auth(refresh_interval=None)
class Key:
    """The key of the job's account, or that of whose turn it is."""

    def get(self, case, context):
        return owner.get((case.path_parameters or {}).get("id")) or next(turn)

    def set(self, case, key, context):
        header, value = [("X-Api-Key", key), ("Authorization", f"Bearer {key}")][KEYS.index(key) % 2]
        case.headers[header] = value


seen = set()


@schemathesis.hook
def after_call(context, case, response):
    seen.add(f"{case.method} {case.path} {response.status_code}")
    if case.method == "POST" and response.status_code in (200, 202):
        sent = response.request.headers
        key = sent.get("X-Api-Key") or sent["Authorization"].removeprefix("Bearer ")
        owner[response.json()["id"]] = key


@atexit.register
def list_seen():
    pathlib.Path(os.environ["PICTOR_SEEN"]).write_text("".join(f"{answer}\n" for answer in sorted(seen)))
