"""batchor's way: with_batchor.py ROWS OUT BASE_URL WORK. Runs in a venv of its own that has batchor."""

import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import cast


def main(rows: str, out: str, url: str, work: str) -> None:
    os.environ["OPENAI_BASE_URL"] = url
    os.environ["OPENAI_API_KEY"] = "sk-none"
    # Without a network tiktoken tries anew at every row to fetch its tables; where it is not there, batchor counts
    # characters.
    sys.modules["tiktoken"] = cast("ModuleType", None)
    import batchor
    from batchor.storage.sqlite import SQLiteStorage

    source = batchor.JsonlItemSource(
        rows, item_id_from_row=lambda row: row["id"], payload_from_row=lambda row: row["text"]
    )
    job = batchor.BatchJob(
        items=source,
        build_prompt=lambda item: batchor.PromptParts(
            prompt=item.payload, system_prompt="Answer positive or negative."
        ),
        provider_config=batchor.OpenAIProviderConfig(
            model="m", endpoint=batchor.OpenAIEndpoint.CHAT_COMPLETIONS, poll_interval_sec=0.2
        ),
    )
    storage = SQLiteStorage(path=Path(work) / "batchor.sqlite3")
    runner = batchor.BatchRunner(storage=storage, temp_root=Path(work) / "artifacts")
    run = runner.start(job).wait()
    answers = {item.item_id: item.output_text for item in run.results()}
    with open(rows, encoding="utf-8") as lines, open(out, "w", encoding="utf-8") as merged:
        for line in lines:
            row = json.loads(line)
            merged.write(json.dumps({**row, "answer": answers.get(row["id"])}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
