"""Task files: what they mean, and that every mistake in one is told at once, by line, with the fix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.errors import TaskError
from batchctl.task import Task, load_task

EXAMPLES = Path(__file__).parents[2] / "examples"

FULL = """\
name: reviews
kind: chat
model: small
system: Be brief, {{ tone }}.
prompt: |
  Review: {{ text }} {{ row["a name"] }}
few_shot:
  - input: {text: good, "a name": x}
    assistant: "yes"
  - user: as it stands
    assistant: "no"
output:
  labels: ["yes", "no"]
expected: label
max_output_tokens: 8
params: {temperature: 0, top_p: 0.5, seed: 7, stop: [END]}
provider_params: {logit_bias: {"50256": -100}}
"""


def load(folder: Path, text: str) -> Task:
    path = folder / "task.yaml"
    path.write_text(text, encoding="utf-8")
    return load_task(path)


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(TaskError) as caught:
        load(folder, text)
    assert all(problem.startswith(f"{folder}/task.yaml:") for problem in caught.value.problems)
    return [problem.removeprefix(f"{folder}/task.yaml:") for problem in caught.value.problems]


def test_a_full_task(tmp_path: Path) -> None:
    task = load(tmp_path, FULL)
    assert task.output.shape.labels == ("yes", "no")
    assert task.columns == ("tone", "text", "a name")
    assert task.params.given == {"temperature": 0, "top_p": 0.5, "seed": 7, "stop": ["END"]}
    assert task.provider_params == {"logit_bias": {"50256": -100}}
    assert task.few_shot[0].input == {"text": "good", "a name": "x"}
    assert task.few_shot[1].user == "as it stands"


def test_the_smallest_task(tmp_path: Path) -> None:
    task = load(tmp_path, 'model: small\nprompt: "{{ text }}"\n')
    assert (task.output.shape.kind, task.params.given, task.few_shot) == ("text", {}, ())
    assert (
        load(tmp_path, "model: small\nprompt: '{{ text }}'\noutput: text\nsystem:\n  hi\n").output.shape.kind == "text"
    )


def test_a_task_survives_json(tmp_path: Path) -> None:
    for text in (FULL, FULL.replace('labels: ["yes", "no"]', "json_schema: {type: object}")):
        task = load(tmp_path, text)
        for again in (Task.model_validate_json(task.model_dump_json()), Task.model_validate(task.model_dump())):
            assert again == task
            assert again.digest == task.digest


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_examples_are_tasks(path: Path) -> None:
    task = load_task(path)
    assert task.columns
    assert task.name == path.stem


def test_the_digest_says_what_is_asked_and_nothing_else(tmp_path: Path) -> None:
    digest = load(tmp_path, FULL).digest
    lines = FULL.splitlines(keepends=True)
    moved = "".join(["# a comment\n", lines[2], *lines[:2], *lines[3:]])
    assert load(tmp_path, moved).digest == digest
    for old, new in (("temperature: 0", "temperature: 1"), ("Be brief", "Be short"), ("good", "fine")):
        assert load(tmp_path, FULL.replace(old, new)).digest != digest
    schema = 'model: m\nprompt: "{{ a }}"\noutput: {json_schema: {properties: {a: {}, b: {}}}}\n'
    assert load(tmp_path, schema).digest != load(tmp_path, schema.replace("{a: {}, b: {}}", "{b: {}, a: {}}")).digest


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    text = """\
modle: small
prompt: |
  Fine: {{ text }}
  Broken: {{ text
output:
  labels:
    - yes
    - no
max_output_tokens: 0
params:
  temperature: 3
  top_k: 5
few_shot:
  - assistant: a
kind: embeddings
"""
    found = problems(tmp_path, text)
    expected = [
        ("1: model: is missing; add `model: ...`",),
        ("1: modle: unknown key; did you mean `model`?",),
        ("4: prompt: ", "; mend the template"),
        ('7: output.labels[0]: YAML reads `yes` as true or false; quote it: "yes"',),
        ('8: output.labels[1]: YAML reads `no` as true or false; quote it: "no"',),
        ("9: max_output_tokens: ", "greater than or equal to 1"),
        ("11: params.temperature: ", "less than or equal to 2"),
        ("12: params.top_k: unknown key", "provider_params"),
        ("14: few_shot[0]: needs either `user: TEXT` or `input:",),
        ("15: kind: there is no kind 'embeddings'; did you mean `kind: embedding`?",),
    ]
    assert len(found) == len(expected), found
    for problem, parts in zip(found, expected, strict=True):
        assert problem.startswith(parts[0]), found
        assert all(part in problem for part in parts), found


PLAIN = 'model: small\nprompt: "{{ text }}"\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PLAIN + "model: big\n", "3: model: the key is there twice, first on line 1; keep one"),
        (PLAIN + "params: {seed: 1, seed: 2}\n", "3: params.seed: the key is there twice"),
        (PLAIN + "outptu: text\n", "3: outptu: unknown key; did you mean `output`?"),
        (PLAIN + "colour: red\n", "3: colour: unknown key, known are: name, kind"),
        (PLAIN + "output: {labels: [a, b], json_schema: {}}\n", "3: output: must be one of: text, {labels"),
        (PLAIN + "output: json\n", "3: output: must be one of"),
        (PLAIN + "output: {}\n", "3: output: must be one of"),
        (PLAIN + "output:\n  labels:\n", "4: output.labels: must be one of"),
        (PLAIN + "output: {labels: [a, a]}\n", "3: output.labels[1]: the label 'a' is there twice"),
        (PLAIN + 'output: {labels: [a, ""]}\n', "3: output.labels[1]: an empty label"),
        (PLAIN + 'output: {labels: [a, "b "]}\n', "3: output.labels[1]: 'b ' begins or ends with a space"),
        (PLAIN + "output: {labels: [a]}\n", "3: output.labels: has fewer than two labels"),
        (PLAIN + "output: {labels: []}\n", "3: output.labels: has fewer than two labels"),
        (PLAIN + "output: {labels: [1, b]}\n", '3: output.labels[0]: YAML reads `1` as a number; quote it: "1"'),
        (PLAIN + "output: {labels: [1:30, b]}\n", 'YAML reads `1:30` as a number; quote it: "1:30"'),
        (PLAIN + "output: {labels: [null, b]}\n", "3: output.labels[0]: is empty"),
        (PLAIN + "output: {labels: [2024-01-01, b]}\n", 'YAML reads `2024-01-01` as a date; quote it: "2024-01-01"'),
        (PLAIN + "output:\n  json_schema:\n    type: objet\n", "5: output.json_schema.type: not a JSON schema"),
        (
            PLAIN + "output:\n  json_schema:\n    properties:\n      a: {type: 7}\n",
            "6: output.json_schema.properties.a.type: not a JSON schema",
        ),
        (
            PLAIN + "output:\n  json_schema: {$ref: 'https://example.org/s'}\n",
            "4: output.json_schema: not a JSON schema",
        ),
        (PLAIN + "provider_params: {yes: 1}\n", 'YAML reads this key as true or false; quote it: "yes"'),
        (PLAIN + "provider_params: {a: .nan}\n", "`.nan` is no number that JSON has"),
        (PLAIN + "provider_params: {a: 2024-01-01}\n", "as a date; quote it"),
        (PLAIN + "provider_params: {a: !!python/object x}\n", "leave the tag out"),
        (PLAIN + "params: &a\n  stop: *a\n", "an alias that repeats itself"),
        (PLAIN + "name: true\n", 'YAML reads `true` as true or false; quote it: "true"'),
        (PLAIN + "expected:\n", "3: expected: is empty"),
        (PLAIN + 'system: " "\n', "3: system: is empty; give a text"),
        (PLAIN + "max_output_tokens: 1.5\n", "3: max_output_tokens: should be a valid integer"),
        (PLAIN + "kind: picture\n", "3: kind: there is no kind 'picture'; write one of chat, responses, embedding"),
        (PLAIN + "kind: 5\n", "3: kind: "),
        (PLAIN + "kind: embedding\noutput: text\n", "4: output: means nothing for kind embedding; remove it"),
        (PLAIN + "kind: embedding\nsystem: x\n", "4: system: means nothing for kind embedding"),
        (PLAIN + "kind: moderation\nmax_output_tokens: 5\n", "4: max_output_tokens: means nothing for kind moderation"),
        (PLAIN + "kind: completion\nfew_shot: [{user: a, assistant: b}]\n", "4: few_shot: means nothing for kind"),
        (PLAIN + "dimensions: 5\n", "3: dimensions: means nothing for kind chat; remove it, it belongs to embedding"),
        (PLAIN + "each: chunks\n", "3: each: means nothing for kind chat"),
        (
            PLAIN + "kind: embedding\neach: chunks\n",
            "2: prompt: does not use the texts of the column 'chunks'; write {{ item",
        ),
        (PLAIN + "kind: embedding\ndimensions: 0\n", "4: dimensions: should be greater than or equal to 1"),
        (PLAIN + "params: [1]\n", "3: params: should be a valid mapping"),
        (PLAIN + "few_shot: no\n", "3: few_shot: should be a valid list"),
        (
            PLAIN + "few_shot:\n  - input: {txt: a}\n    assistant: b\n",
            "4: few_shot[0].input: there is no column 'text'; give every column",
        ),
        (PLAIN + "few_shot: [{user: a, input: {text: b}, assistant: c}]\n", "few_shot[0]: needs either"),
        (
            PLAIN + "output: {labels: [good, bad]}\nfew_shot:\n  - user: a\n    assistant: god\n",
            "6: few_shot[0].assistant: 'god' is none of the labels; write 'good'",
        ),
        (PLAIN + "few_shot: [{user: a, assistant: {b: c}}]\n", "a mapping answers only a json_schema"),
        (PLAIN + "few_shot: [{user: a}]\n", "3: few_shot[0].assistant: is missing"),
        (
            "model: small\nprompt: Review {text}\n",
            "2: prompt: {text} is sent as it stands, no column is used; write {{ text }}",
        ),
        ("model: small\nprompt: '{% include \"x\" %}'\n", "2: prompt: a template cannot take in other files"),
        ("model: small\nprompt: '{{ a|nofilter }}'\n", "2: prompt: No filter named 'nofilter'"),
        ("model: small\nprompt:\n  - a\n", "2: prompt: should be a valid string"),
        ("model: [\n", "not YAML"),
        ("a: b: c\n", "1: not YAML"),
        ("\ttab: 1\n", "1: not YAML"),
        ("just text\n", "1: a task is a mapping"),
        ("", "1: a task is a mapping"),
        ("a: \x01\n", "1: not YAML"),
    ],
)
def test_what_is_wrong_is_told_by_line_and_key(tmp_path: Path, text: str, expected: str) -> None:
    found = problems(tmp_path, text)
    assert any(expected in problem for problem in found), found


def test_a_missing_file_and_a_wrong_encoding(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"nowhere\.yaml: cannot be read: No such file"):
        load_task(tmp_path / "nowhere.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"model: small\nprompt: caf\xe9\n")
    with pytest.raises(TaskError, match=r"latin\.yaml:2: byte 0xE9 is not UTF-8"):
        load_task(tmp_path / "latin.yaml")


def test_aliases_that_multiply_end(tmp_path: Path) -> None:
    levels = "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 10)}]\n" for n in range(1, 12))
    found = problems(tmp_path, f"x0: &x0 [a, a]\n{levels}")
    assert any("repeats itself" in problem for problem in found)


@given(text=st.text(st.sampled_from("abmodelprt:{}[]|>-&*!%\"'\n #?,~01.")) | st.text())
def test_any_text_is_a_task_or_a_list_of_problems(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(TaskError) as caught:
        load_task(path)
    assert caught.value.problems


def test_few_shot_answers_of_a_schema_are_written_as_json(tmp_path: Path) -> None:
    text = PLAIN + "output: {json_schema: {type: object}}\nfew_shot: [{user: a, assistant: {b: é}}]\n"
    assert json.loads(load(tmp_path, text).few_shot[0].answer) == {"b": "é"}


def test_an_embedding_of_several_texts_names_their_column(tmp_path: Path) -> None:
    task = load(tmp_path, 'kind: embedding\nmodel: m\neach: chunks\nprompt: "{{ title }}: {{ item }}"\ndimensions: 8\n')
    assert (task.kind, task.columns, task.dimensions) == ("embedding", ("chunks", "title"), 8)
