"""The plain script: with_plain.py ROWS OUT BASE_URL WORK. What somebody writes who promises nothing, stdlib only.

One upload a batch, one create, a poll, one download, a merge by byte offsets. Nothing durable, nothing checked, nothing
sent again. `bench/floor.py` makes the lines and merges them; this is what goes between.
"""

import http.client
import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[2]))
from bench import floor

CUT = "----plain"


class Wire:
    """One connection to the provider."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._path = parts.path
        self._connection = http.client.HTTPConnection(parts.netloc)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        self._connection.request(method, self._path + path, sent, headers)
        return json.loads(self._connection.getresponse().read())

    def upload(self, path: str) -> str:
        head = (
            f'--{CUT}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--{CUT}\r\n'
            f'content-disposition: form-data; name="file"; filename="{os.path.basename(path)}"\r\n\r\n'
        ).encode()
        body = head + Path(path).read_bytes() + f"\r\n--{CUT}--\r\n".encode()
        name: str = self.ask("POST", "/files", body, **{"content-type": f"multipart/form-data; boundary={CUT}"})["id"]
        return name

    def download(self, name: str, target: str) -> None:
        self._connection.request("GET", f"{self._path}/files/{name}/content")
        answer = self._connection.getresponse()
        with open(target, "wb") as out:
            while chunk := answer.read(1 << 20):
                out.write(chunk)


def main(rows: str, out: str, url: str, work: str) -> None:
    loads, dumps = floor.codec("stdlib")
    wire, outputs = Wire(url), []
    for shard in floor.build(rows, work, loads, dumps):
        asked = {
            "input_file_id": wire.upload(shard),
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
        }
        batch = wire.ask("POST", "/batches", asked)
        while batch["status"] not in ("completed", "expired", "failed"):
            time.sleep(0.2)
            batch = wire.ask("GET", f"/batches/{batch['id']}")
        outputs.append(f"{shard}.out")
        wire.download(batch["output_file_id"], outputs[-1])
    floor.merge(rows, outputs, work, loads, dumps)
    os.replace(os.path.join(work, "merged.jsonl"), out)


if __name__ == "__main__":
    main(*sys.argv[1:])
