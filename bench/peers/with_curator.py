"""curator's way: with_curator.py ROWS OUT BASE_URL WORK. Runs in a venv of its own that has bespokelabs-curator."""

import json
import os
import sys

QUIET = {
    "TELEMETRY_ENABLED": "false",
    "CURATOR_DISABLE_RICH_DISPLAY": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "HF_HUB_OFFLINE": "1",
}


def main(rows: str, out: str, url: str, work: str) -> None:
    os.environ.update(QUIET, HOME=work, HF_HOME=work, CURATOR_CACHE_DIR=work, OPENAI_API_KEY="sk-none")
    from bespokelabs import curator
    from datasets import Dataset

    class Judge(curator.LLM):
        def prompt(self, row: dict[str, str]) -> str:
            return row["text"]

        def parse(self, row: dict[str, str], response: str) -> list[dict[str, str]]:
            return [{**row, "answer": response}]

    judge = Judge(
        model_name="gpt-4o-mini",  # one that its cost table knows
        backend="openai",
        batch=True,
        system_prompt="Answer positive or negative.",
        backend_params={
            "base_url": url,
            "batch_check_interval": 1,
            "batch_size": 50_000,
            "require_all_responses": False,
            "max_retries": 3,
        },
        generation_params={"max_tokens": 8},
    )
    with open(rows, encoding="utf-8") as lines:
        table = Dataset.from_list([json.loads(line) for line in lines])
    with open(out, "w", encoding="utf-8") as merged:
        answered = judge(table, working_dir=work).dataset
        merged.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in answered)


if __name__ == "__main__":
    main(*sys.argv[1:])
