#!/usr/bin/env python3
"""The floor that batchctl's own overhead is measured against, in the same run, on the same rows.

floor.py ROWS.jsonl WORKDIR [--json stdlib|orjson]

build: read each row, make the OpenAI batch line, write shards of at most 50,000 lines / 190 MB.
merge: shuffle each shard's answers, then write every input row with its answer, in input order, by byte offsets.
Nothing durable, nothing checked, no store: a program that keeps its promises has to do more than this.
Prints one JSON object: rows, cpu and wall seconds of both halves, peak RSS in MB of each.
"""

import argparse
import json
import os
import random
import resource
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
Loads = Callable[[bytes], Any]
Dumps = Callable[[Any], bytes]

MAX_LINES, MAX_BYTES = 50_000, 190_000_000


def codec(name: str) -> tuple[Loads, Dumps]:
    if name == "orjson":
        import orjson

        return orjson.loads, orjson.dumps
    return json.loads, lambda value: json.dumps(value, ensure_ascii=False).encode()


def rss_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def build(rows: str, work: str, loads: Loads, dumps: Dumps) -> list[str]:
    shards: list[str] = []
    out, lines, size = None, 0, 0
    with open(rows, "rb") as source:
        for raw in source:
            row = loads(raw)
            line = (
                dumps(
                    {
                        "custom_id": row["id"],
                        "method": "POST",
                        "url": "/v1/chat/completions",
                        "body": {
                            "model": "m",
                            "max_tokens": 8,
                            "messages": [
                                {"role": "system", "content": "Answer positive or negative."},
                                {"role": "user", "content": row["text"]},
                            ],
                        },
                    }
                )
                + b"\n"
            )
            if out is None or lines == MAX_LINES or size + len(line) > MAX_BYTES:
                if out:
                    out.close()
                shards.append(os.path.join(work, f"shard-{len(shards)}.jsonl"))
                out, lines, size = open(shards[-1], "wb"), 0, 0
            out.write(line)
            lines, size = lines + 1, size + len(line)
    if out:
        out.close()
    return shards


def answer(shards: list[str], loads: Loads, dumps: Dumps) -> list[str]:
    """Not timed: what the provider would send back, in another order."""
    outputs, rnd = [], random.Random(11)
    for shard in shards:
        with open(shard, "rb") as source:
            ids = [loads(raw)["custom_id"] for raw in source]
        rnd.shuffle(ids)
        outputs.append(shard.replace("shard-", "output-"))
        with open(outputs[-1], "wb") as out:
            for i in ids:
                body = {
                    "id": "c",
                    "object": "chat.completion",
                    "model": "m",
                    "usage": {"prompt_tokens": 90, "completion_tokens": 1, "total_tokens": 91},
                    "choices": [
                        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "positive"}}
                    ],
                }
                out.write(
                    dumps(
                        {
                            "id": "r",
                            "custom_id": i,
                            "error": None,
                            "response": {"status_code": 200, "request_id": "q", "body": body},
                        }
                    )
                    + b"\n"
                )
    return outputs


def merge(rows: str, outputs: list[str], work: str, loads: Loads, dumps: Dumps) -> None:
    where: dict[str, tuple[int, int]] = {}
    files = [open(path, "rb") for path in outputs]
    for number, file in enumerate(files):
        offset = 0
        for raw in file:
            where[loads(raw)["custom_id"]] = (number, offset)
            offset += len(raw)
    with open(rows, "rb") as source, open(os.path.join(work, "merged.jsonl"), "wb") as out:
        for raw in source:
            row = loads(raw)
            number, offset = where[row["id"]]
            files[number].seek(offset)
            reply = loads(files[number].readline())
            row["answer"] = reply["response"]["body"]["choices"][0]["message"]["content"]
            out.write(dumps(row) + b"\n")
    for file in files:
        file.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows")
    parser.add_argument("work")
    parser.add_argument("--json", choices=["stdlib", "orjson"], default="stdlib")
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    loads, dumps = codec(args.json)

    def timed(step: Callable[[], T]) -> tuple[T, float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        value = step()
        return value, round(time.perf_counter() - wall, 2), round(time.process_time() - cpu, 2)

    shards, build_wall, build_cpu = timed(lambda: build(args.rows, args.work, loads, dumps))
    build_rss = rss_mb()
    outputs = answer(shards, loads, dumps)
    _, merge_wall, merge_cpu = timed(lambda: merge(args.rows, outputs, args.work, loads, dumps))
    with open(args.rows, "rb") as source:
        count = sum(1 for _ in source)
    print(
        json.dumps(
            {
                "json": args.json,
                "rows": count,
                "build_cpu_s": build_cpu,
                "build_wall_s": build_wall,
                "build_rss_mb": build_rss,
                "merge_cpu_s": merge_cpu,
                "merge_wall_s": merge_wall,
                "peak_rss_mb": rss_mb(),
            }
        )
    )


if __name__ == "__main__":
    main()
