#!/usr/bin/env python3
"""Write N synthetic review rows (about 440 bytes each) as JSONL: gen_rows.py N OUT. Same seed, same bytes."""

import json
import random
import sys

WORDS = (
    "the product was great but it broke after a week and support never answered my second message about the refund"
).split()


def main(n: int, path: str) -> None:
    rnd = random.Random(7)
    with open(path, "w", encoding="utf-8") as out:
        for i in range(n):
            text = " ".join(rnd.choice(WORDS) for _ in range(70))
            out.write(
                json.dumps({"id": f"row-{i:07d}", "text": text, "gold": rnd.choice(["positive", "negative"])}) + "\n"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
