"""A refusal is sent while the client still uploads: urllib must get to see it,
and not a connection that was reset."""

import json
import os
import unittest
import urllib.error
import urllib.request

BASE_URL, KEY = os.environ["PICTOR_BASE_URL"], os.environ["PICTOR_API_KEY"]


class Refusal(unittest.TestCase):
    def refusal_to(self, key):
        headers = {"X-Api-Key": key, "Content-Type": "image/png"}
        request = urllib.request.Request(BASE_URL + "/upscale", bytes(48 << 20), headers)
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=60)
        with refused.exception as answer:
            return answer.code, json.load(answer)["error"]["code"]

    def test_urllib_sees_that_the_file_is_too_large(self):
        self.assertEqual(self.refusal_to(KEY), (413, "file_too_large"))

    def test_urllib_sees_that_the_key_is_invalid(self):
        self.assertEqual(self.refusal_to("pictor_nonsense"), (401, "invalid_key"))


if __name__ == "__main__":
    unittest.main()
