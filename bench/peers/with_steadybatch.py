"""steadybatch's way: with_steadybatch.py ROWS OUT BASE_URL WORK. Runs in a venv of its own that has steadybatch."""

import json
import sys
from pathlib import Path


def main(rows: str, out: str, url: str, work: str) -> None:
    from openai import OpenAI
    from steadybatch import Request, Runner
    from steadybatch.providers.openai_batch import OpenAIBatch

    with open(rows, encoding="utf-8") as lines:
        table = [json.loads(line) for line in lines]
    requests = [
        Request(
            key=row["id"],
            messages=[{"role": "user", "content": row["text"]}],
            system="Answer positive or negative.",
            max_tokens=8,
        )
        for row in table
    ]
    provider = OpenAIBatch(OpenAI(api_key="sk-none", base_url=url))
    runner = Runner(provider, "m", checkpoint=Path(work) / "steadybatch.sqlite3", poll_every=0.2)
    answers = {result.key: result.text for result in runner.run(requests).results if result.outcome == "ok"}
    with open(out, "w", encoding="utf-8") as merged:
        rows_out = ({**row, "answer": answers.get(row["id"])} for row in table)
        merged.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows_out)


if __name__ == "__main__":
    main(*sys.argv[1:])
